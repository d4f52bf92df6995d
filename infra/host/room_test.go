package host

import (
	"strings"
	"testing"
)

// TestReadRoom reads the room for a file: one that exists, and one whose directories do not exist.
func TestReadRoom(t *testing.T) {
	m := newLocalMachine(t)
	m.write("db", strings.Repeat("x", 12345))
	for path, used := range map[string]int64{m.file("db"): 12345, m.file("a/b c/db"): 0} {
		room, err := ReadRoom(t.Context(), m, path)
		if err != nil || room.Used != used || room.Free <= 0 || room.For() != room.Free+used {
			t.Errorf("%s: %+v, %v; wanted %d used, and some free", path, room, err, used)
		}
	}
}
