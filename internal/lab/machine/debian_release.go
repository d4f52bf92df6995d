package machine

// A Release is a release of Debian that machines can run.
type Release struct {
	Version  string // "13"
	Codename string // "trixie"
}

// Releases are the releases that a lab has images of, newest first.
var Releases = []Release{{"13", "trixie"}, {"12", "bookworm"}}
