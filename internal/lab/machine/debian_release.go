package machine

// A Release of Debian that machines can be made of.
type Release struct {
	Version  string // "13"
	Codename string // "trixie"
}

// Releases are those that a lab has images of, the newest first.
var Releases = []Release{{"13", "trixie"}, {"12", "bookworm"}}
