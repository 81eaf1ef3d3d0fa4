"""Arrow and numpy as ``Any``: their types are too incomplete for strict mode."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy
import pyarrow

pa: Any = pyarrow
np: Any = numpy

Array: TypeAlias = Any
DataType: TypeAlias = Any
RecordBatch: TypeAlias = Any
Schema: TypeAlias = Any
