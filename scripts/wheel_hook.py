"""Build hook that adds kernels built ahead of time to a wheel (`make wheel`).

Without these the wheel is for all platforms, and kernels are compiled at first calls.
"""

import os
import sysconfig

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CustomBuildHook(BuildHookInterface):
    """Add the folder FASTMF_BUILT and the platform tag to a wheel."""

    def initialize(self, version, build_data):
        """Set the build data; called by hatchling before it builds a wheel."""
        folder = os.environ.get("FASTMF_BUILT")
        if not folder or version == "editable":
            return
        platform = os.environ.get("FASTMF_PLATFORM") or sysconfig.get_platform()
        tag = platform.replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{tag}"
        build_data["force_include"][os.path.abspath(folder)] = "fastmf/_jit/built"
