package host

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
)

//go:embed stage.sh
var stageFunctions string

// ScriptDigest returns a digest of the scripts with which Apply changes machines: what an image of such a
// machine is made with.
func ScriptDigest() string {
	return desired.Sum([]byte(observeFunctions + applyFunctions + downloadFunctions + packageFunctions + trustFunctions))
}

// The transient units of a staging.
const (
	StageUnit         = "k8s-stage.service"          // programs
	StagePackagesUnit = "k8s-stage-packages.service" // packages
)

// StageCommand returns a shell command for the first boot of a machine, early enough that the boot
// need not have reached any unit. The command ends at once and never fails. It starts two transient
// units of low priority, which download and verify the programs of want, unpack their archives, and
// fetch the packages of want. They install nothing and start nothing: a later Apply takes from the
// machine what is there, and fetches the rest itself.
//
// Binaries without a checksum, and those whose URL contains credentials, are left out: whoever may
// describe an instance can read its user data. The command is empty if nothing is left. It holds no
// other data of want. The variables, each as NAME=value, are those of the downloads, such as a proxy.
func StageCommand(want desired.State, variables ...string) (string, error) {
	return standardLayout().stageCommand(want, variables...)
}

func (l layout) stageCommand(want desired.State, variables ...string) (string, error) {
	script, err := l.stageScript(want)
	if script == "" || err != nil {
		return "", err
	}
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err == nil {
		_, err = z.Write([]byte(script))
	}
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		return "", fmt.Errorf("pack the staging script: %w", err)
	}
	file := quote(l.run + "/stage.sh")
	set := ""
	for _, v := range variables {
		set += " -E " + quote(v)
	}
	start := func(unit, what, after string) string {
		// Nothing of the boot waits for the unit, and the unit only for what it needs.
		return "systemd-run --quiet --no-block --collect --unit=" + unit + " -p DefaultDependencies=no" + after +
			" -p EnvironmentFile=-/etc/environment" + set + // a proxy of the image, as commands by SSH have it
			" -p Nice=10 -p IOSchedulingClass=best-effort -p IOSchedulingPriority=7 sh " + file + " " + what
	}
	return fmt.Sprintf("(umask 077 && mkdir -p %s && printf %%s %s | base64 -d | gzip -d >%s && { %s; %s; }) || :",
		quote(l.run), base64.StdEncoding.EncodeToString(packed.Bytes()), file,
		start(StageUnit, "programs", ""),
		// cloud-init writes apt's sources, and its last stage may install packages, for which it waits
		// only 30 s if others hold apt's locks.
		start(StagePackagesUnit, "packages", " -p After=cloud-final.service")), nil
}

// stageScript returns the script, which takes "programs" or "packages" as its argument; empty if there
// is nothing to fetch.
func (l layout) stageScript(want desired.State) (string, error) {
	if err := validate(desired.State{Packages: want.Packages}); err != nil {
		return "", err
	}
	var programs script
	for _, b := range unique(want.Binaries) {
		if u, err := url.Parse(b.URL); b.SHA256 == "" || err != nil || u.User != nil {
			continue
		}
		programs.call("stage_program", append([]string{b.SHA256, b.URL, title(b)}, members(b)...)...)
	}
	if programs.Len() == 0 && len(want.Packages) == 0 {
		return "", nil
	}
	var s script
	s.WriteString("programs() {\n:\n" + programs.String() + "}\n")
	fmt.Fprintf(&s, "tmpfiles=%s\n", quote(l.tmpfiles))
	s.WriteString("stage_begin \"$1\"\n")
	trust := ""
	if want.Authorities != "" {
		trust = trustFunctions
		s.trust(want)
	}
	s.WriteString("case $1 in\nprograms) stage_programs ;;\npackages)\n")
	s.callAll("stage_packages", want.Packages)
	s.WriteString(";;\nesac\nrm -f -- \"$run/ahead.$1\"\nexit 0\n")
	return withoutComments(l.preamble() + downloadFunctions + packageFunctions + trust + stageFunctions + s.String()), nil
}

// withoutComments removes the lines that are comments, and indentation, from a script without texts
// that span lines: user data must be short.
func withoutComments(script string) string {
	var out strings.Builder
	for line := range strings.Lines(script) {
		line = strings.TrimLeft(line, "\t")
		if line != "\n" && !strings.HasPrefix(line, "#") {
			out.WriteString(line)
		}
	}
	return out.String()
}
