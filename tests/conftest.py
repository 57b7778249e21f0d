import os

# Whether something is compiled depends on the tests before; what a test finds on stderr should not.
os.environ["FASTMF_QUIET"] = "1"
