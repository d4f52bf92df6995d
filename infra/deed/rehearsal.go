package deed

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
)

// rehearsalPrefix begins the names of the transient units of a rehearsal.
const rehearsalPrefix = "k8s-rehearsal-"

// Trial is a unit to be rehearsed.
type Trial struct {
	Unit    string // its name
	Program string // the file it runs
	// Archive is the download that holds Program as Member; empty if Program is a file already.
	Archive, Member string
	// File is the content of the unit file to rehearse with.
	File []byte
}

// Rehearse starts units under other names beside those that run, and leaves nothing behind. staged
// is a tar archive of files that the units see in /etc. dir is the rehearsal's own directory, two
// levels below /run: /run/x/y. The report holds for each unit its name, its exit status and, on the
// lines below, its output; a NUL byte ends each unit's part.
func Rehearse(ctx context.Context, r Runner, dir string, trials []Trial, staged io.Reader) (report string, err error) {
	return rehearse.run(ctx, r, rehearsalScript(dir, trials), staged)
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
