package main

import (
	"bufio"
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/codes"
)

// codeCount says how often AWS answered an action with a code.
type codeCount struct {
	Service, Action, Code string
	Count                 int
	Known                 bool // the local EC2 answers with it, too
}

// field is one of the fields of a line of the log: key=value, or key="value with spaces".
var field = regexp.MustCompile(`\b(service|action|code|encoded)=("[^"]*"|\S+)`)

// readRefusals reads from the provider's log which calls AWS refused.
func readRefusals(log io.Reader) (found []infraaws.Refusal, err error) {
	lines := bufio.NewReader(log)
	for {
		line, err := lines.ReadString('\n')
		if strings.Contains(line, infraaws.RefusalMessage+":") {
			var r infraaws.Refusal
			for _, m := range field.FindAllStringSubmatch(line, -1) {
				value := strings.Trim(m[2], `"`)
				switch m[1] {
				case "service":
					r.Service = value
				case "action":
					r.Action = value
				case "code":
					r.Code = value
				case "encoded":
					r.Encoded = value
				}
			}
			found = append(found, r)
		}
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return found, err
		}
	}
}

// count counts refusals, and says which of their codes the local EC2 does not know.
func count(refusals []infraaws.Refusal) []codeCount {
	counts := map[infraaws.Refusal]int{}
	var met []string
	for _, r := range refusals {
		r.Encoded = ""
		counts[r]++
		met = append(met, r.Code)
	}
	unknown := codes.Unknown(met)
	out := []codeCount{}
	for r, n := range counts {
		out = append(out, codeCount{r.Service, r.Action, r.Code, n, !slices.Contains(unknown, r.Code)})
	}
	slices.SortFunc(out, func(a, b codeCount) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Action, b.Action), cmp.Compare(a.Code, b.Code))
	})
	return out
}

// refusals returns what AWS refused to the provider.
func (t *trial) refusals() (found []infraaws.Refusal, err error) {
	log, err := os.Open(t.providerLog())
	if err == nil {
		defer func() { _ = log.Close() }()
		found, err = readRefusals(log)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // the trial ended before Terraform was run
	}
	return found, err
}
