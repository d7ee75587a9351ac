"""Interface modules that can be called.

``fiood_core.detector`` is the module of the Detector interface, and ``fiood_core.detector("vim", dim=512)`` looks a
detector up.  Python binds a submodule to its package under the submodule's name, so the one object must be both.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class LookupModule(ModuleType):
    """A module that looks a component of its kind up when it is called."""

    def __call__(self, name: str, /, **parameters: Any) -> Any:
        """An instance of the component that is registered under ``name``, with parameters.

        Parameters
        ----------
        name : str
            A registered name, ``module:Object``, or a path that begins with ``./``.
        **parameters
            The component's parameters; ``preset=...`` selects a published setting of a detector.

        Raises
        ------
        UnknownComponentError, PluginError, ParameterError
        """
        from fiood_core import registry

        return registry.create(f"{self.__name__.rpartition('.')[2]}", name, **parameters)


def make_callable(module_name: str) -> None:
    """Turn an interface module into a :class:`LookupModule`; the last line of each interface module."""
    sys.modules[module_name].__class__ = LookupModule
