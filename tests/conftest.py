import os

# Whether something is compiled depends on the tests before; what a test finds on stderr should not.
os.environ["FASTMF_QUIET"] = "1"
# All cores run tests: a second process that compiles would take time from them.
os.environ["FASTMF_COMPILERS"] = "1"
