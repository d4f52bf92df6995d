package host

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// FileRoom is how much space there is for one file, in bytes.
type FileRoom struct {
	Free int64 // of the file system, for root
	Used int64 // by the file; 0 if it does not exist
}

// For returns how large the file could become.
func (r FileRoom) For() int64 { return r.Free + r.Used }

// ReadRoom returns the room for a file, which need not exist; nor need its directories. It changes
// nothing. Its errors are those of [remote.Machine.Run].
func ReadRoom(ctx context.Context, r Runner, path string) (FileRoom, error) {
	var s script
	s.call("read_room", path)
	found, err := read(ctx, r, s.String())
	if err != nil {
		return FileRoom{}, err
	}
	free, used, ok := strings.Cut(strings.TrimSpace(string(found[path])), " ")
	kib, err := strconv.ParseInt(free, 10, 64)
	size, sizeErr := strconv.ParseInt(used, 10, 64)
	if !ok || err != nil || sizeErr != nil {
		return FileRoom{}, fmt.Errorf("machine %s: the space for %s is not known: df says %q", r.Name(), path, found[path])
	}
	return FileRoom{Free: kib << 10, Used: size}, nil
}
