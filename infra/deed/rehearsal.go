package deed

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
)

// rehearsalPrefix begins the names of the units that exist for a moment only.
const rehearsalPrefix = "k8s-rehearsal-"

// Trial is a unit to be rehearsed.
type Trial struct {
	Unit    string // its name
	Program string // the file it will run
	// Archive is the download that Program has to be taken out of first, as
	// Member; empty for none.
	Archive, Member string
	// File is the unit file to rehearse it with.
	File []byte
}

// Rehearse starts units under other names beside those that run, with files
// laid over /etc, which staged holds as a tar archive, and leaves nothing
// behind. dir is its own directory below /run, /run/x/y. The report says of each
// unit its name, its exit status and, on the lines below, what it printed; the
// reports of units end with a NUL byte.
func Rehearse(ctx context.Context, r Runner, dir string, trials []Trial, staged io.Reader) (report string, err error) {
	return run(ctx, r, rehearsalScript(dir, trials), staged)
}

func rehearsalScript(dir string, trials []Trial) string {
	var calls strings.Builder
	calls.WriteString("begin\n")
	for _, t := range trials {
		if t.Archive != "" {
			fmt.Fprintf(&calls, "unpack %s\n", quoted(t.Archive, t.Member, t.Program))
		}
		fmt.Fprintf(&calls, "rehearse %s <<'END OF UNIT'\n%s\nEND OF UNIT\n", quoted(t.Unit, t.Program), bytes.TrimSpace(t.File))
	}
	calls.WriteString("finish\n")
	return rehearse.script(dir, rehearsalPrefix) + calls.String()
}
