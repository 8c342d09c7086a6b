import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from socsched.errors import InputError
from socsched.models.pointpillars.scan import list_scans, read_scan, write_bin

FINITE = hnp.arrays(np.float32, st.tuples(st.integers(1, 40), st.just(4)), elements=st.floats(-1e6, 1e6, width=32))


@given(points=FINITE)
def test_what_is_written_is_read_back_on_a_64_byte_border(tmp_path_factory, points):
    path = tmp_path_factory.mktemp("scan") / "a.bin"
    write_bin(path, points)
    back = read_scan(path)
    assert back.dtype == np.float32 and back.ctypes.data % 64 == 0
    np.testing.assert_array_equal(back, points)


def test_a_folder_lists_its_scans_in_order_and_nothing_else(tmp_path):
    for name in ("b.bin", "a.bin", "a.txt", "c.BIN.bak"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "d.bin").mkdir()
    assert [path.name for path in list_scans(tmp_path)] == ["a.bin", "b.bin"]
    assert list_scans(tmp_path / "b.bin") == (tmp_path / "b.bin",)


def test_a_folder_without_scans_and_a_missing_path_are_input_errors(tmp_path):
    with pytest.raises(InputError, match=r"no scan in this folder.*\.bin") as caught:
        list_scans(tmp_path)
    assert "16 bytes" in caught.value.hint
    with pytest.raises(InputError, match=r"gone.*no such scan or folder"):
        list_scans(tmp_path / "gone")
    (tmp_path / "a.pcd").write_bytes(b"x")
    with pytest.raises(InputError, match=r"a\.pcd.*ends in \.bin"):
        list_scans(tmp_path / "a.pcd")


def _rows(*patches):
    points = np.zeros((5, 4), np.float32)
    for row, column, value in patches:
        points[row, column] = value
    return points.tobytes()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"empty, expected at least one row"),
        (bytes(16 * 7 + 9), r"121 bytes, expected a multiple of 16: row 7 breaks off after 9"),
        (bytes(3), r"row 0 breaks off after 3"),
        (_rows((2, 1, np.nan)), r"1 of 5 rows hold NaN or infinite values, the first is row 2 \(0, nan, 0, 0\)"),
        (_rows((4, 3, np.inf), (1, 0, -np.inf), (1, 2, np.nan)), r"2 of 5 rows .* first is row 1 \(-inf, 0, nan, 0\)"),
    ],
)
def test_a_damaged_scan_names_the_file_the_fault_and_the_row(tmp_path, content, message):
    path = tmp_path / "bad.bin"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        read_scan(path)
    assert str(path) in str(caught.value) and caught.value.hint


def test_a_missing_scan_a_folder_and_a_wrong_name_are_input_errors(tmp_path):
    with pytest.raises(InputError, match="no such scan"):
        read_scan(tmp_path / "gone.bin")
    (tmp_path / "dir.bin").mkdir()
    with pytest.raises(InputError, match="cannot be read"):
        read_scan(tmp_path / "dir.bin")
    with pytest.raises(InputError, match="not a scan"):
        read_scan(tmp_path / "scan.txt")
