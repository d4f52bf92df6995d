package host

import (
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/foreign"
)

var (
	klogLine  = regexp.MustCompile(`^[EF]\d{4} [^\]]*\] (.*)$`)
	klogError = regexp.MustCompile(` err=("(?:[^"\\]|\\.)*"|<$)`)
	plainLine = regexp.MustCompile(`^(?:Error: |panic: |fatal error: |containerd: |\[ALERT\] *\(\d+\) : )(.*)$|` +
		`^((?:flag provided but not defined|invalid value|invalid boolean value).*|/\S+:\d+:\d+-\d+: Error: .*)$`)
	// hollow matches lines that only say that there is an error in the lines above.
	hollow = regexp.MustCompile(`rror(s|\(s\)) found in configuration`)
)

// Complaint returns the last line, or lines, in which a program says why it exits; empty if it does not
// say so in a form that is known here. It knows what Go programs, klog, zap, HAProxy and nft write.
func Complaint(output string) string {
	lines := strings.Split(output, "\n")
	for i, line := range slices.Backward(lines) {
		if m := plainLine.FindStringSubmatch(line); m != nil && !hollow.MatchString(line) {
			return m[1] + m[2]
		}
		if m := klogLine.FindStringSubmatch(line); m != nil {
			return klogComplaint(m[1], lines[i+1:])
		}
		if strings.HasPrefix(line, "{") {
			if c := jsonComplaint(line); c != "" {
				return c
			}
		}
	}
	return ""
}

// klogComplaint returns the error in klog's text format. One of several lines is between < and >.
func klogComplaint(message string, below []string) string {
	m := klogError.FindStringSubmatch(message)
	if m == nil {
		return message
	}
	if m[1] == "<" {
		end := slices.Index(below, " >")
		return strings.Join(below[:max(end, 0)], "\n")
	}
	text, err := strconv.Unquote(m[1])
	if err != nil {
		return message
	}
	return text
}

// jsonComplaint returns the error in a line of klog's or zap's JSON format.
func jsonComplaint(line string) string {
	var entry struct{ Level, Msg, Err, Error string }
	if json.Unmarshal([]byte(line), &entry) != nil {
		return ""
	}
	switch text := entry.Err + entry.Error; {
	case text != "":
		return text
	case entry.Level == "fatal" || entry.Level == "":
		return entry.Msg
	}
	return ""
}

// maxSaid is how many characters of a program's last error a finding quotes.
const maxSaid = 300

// lastError returns a program's last error in one line, or its last line if no error is known, fit to be shown.
func lastError(journal string) string {
	journal = strings.TrimSpace(foreign.Text(journal))
	said := Complaint(journal)
	if said == "" {
		said = journal[strings.LastIndexByte(journal, '\n')+1:]
	}
	return foreign.Line(said, maxSaid)
}
