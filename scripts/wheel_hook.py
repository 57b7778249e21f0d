"""Part of the wheel for a platform: the kernels that were built ahead (`make wheel`).

Without them the wheel is for all platforms, and kernels are compiled at first calls.
"""

import os
import sysconfig

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CustomBuildHook(BuildHookInterface):
    """Adds the folder FASTMF_BUILT, and the tag of the platform."""

    def initialize(self, version, build_data):
        """Called by hatchling before it builds a wheel."""
        folder = os.environ.get("FASTMF_BUILT")
        if not folder or version == "editable":
            return
        platform = os.environ.get("FASTMF_PLATFORM") or sysconfig.get_platform()
        tag = platform.replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{tag}"
        build_data["force_include"][os.path.abspath(folder)] = "fastmf/_jit/built"
