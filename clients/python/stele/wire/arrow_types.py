"""Arrow and numpy without their types, which pyarrow does not have complete enough for strict checks."""

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
