package main

import (
	"cmp"
	"fmt"
	"maps"
	"math/big"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/file"
)

// record is what is known of the last runs of a part. It is committed.
type record struct {
	// Date, Seconds, Figures and Packages are of the last run that passed.
	Date     string   `json:"date,omitempty"`
	Seconds  int      `json:"seconds,omitempty"`
	Figures  []string `json:"figures,omitempty"`
	Packages string   `json:"packages,omitempty"`
	// Note tells what was special about it.
	Note string `json:"note,omitempty"`
	// Failed is the date of a later run that did not pass.
	Failed string `json:"failed,omitempty"`
	// Part is the digest of the part's steps.
	Part string `json:"part,omitempty"`
	// Covers has the digest of everything that the run covers, as tree.digest gives it, and after the digest
	// of a package, in base 62, which of its functions ran.
	Covers map[string]string `json:"covers,omitempty"`
}

func recordFile(root, part string) string {
	return filepath.Join(root, "internal", "soak", "runs", part+".json")
}

func readRecord(root, part string) (r record, err error) {
	return r, file.ReadJSON(recordFile(root, part), &r)
}

func (r record) write(root, part string) error {
	return file.WriteJSON(recordFile(root, part), r, 0o644)
}

// changedMeanwhile is the digest of what was changed while a part ran: nobody knows what the run saw.
const changedMeanwhile = "changed-meanwhile"

// digester is tree.digest.
type digester func(key string, tests bool, ran *big.Int) string

// cover fills in what a run covers. before is the tree when it began, after when it ended.
func (r *record) cover(p part, covers map[string]*big.Int, before, after digester) {
	r.Part, r.Covers = p.digest(), map[string]string{}
	for key, ran := range covers {
		tests := slices.Contains(p.tested(), key)
		digest := before(key, tests, ran)
		if digest != after(key, tests, ran) {
			digest = changedMeanwhile
		}
		if ran != nil {
			digest += " " + ran.Text(base)
		}
		r.Covers[key] = digest
	}
}

const base = 62

// due says why a part is due. It returns "" for a part that has run on what it covers.
func due(p part, r record, now digester) string {
	switch {
	case r.Failed != "":
		return "failed on " + r.Failed
	case r.Date == "":
		return "has never passed"
	case r.Covers == nil:
		return "what it covers is not known"
	case r.Part != p.digest():
		return "its steps changed"
	}
	var changed []string
	for _, key := range slices.Sorted(maps.Keys(r.Covers)) {
		digest, text, some := strings.Cut(r.Covers[key], " ")
		var ran *big.Int
		if some {
			ran, _ = new(big.Int).SetString(text, base)
		}
		if now(key, slices.Contains(p.tested(), key), ran) != digest {
			changed = append(changed, key)
		}
	}
	const most = 3
	switch more := len(changed) - most; {
	case len(changed) == 0:
		return ""
	case more > 0:
		return fmt.Sprintf("changed: %s and %d more", strings.Join(changed[:most], ", "), more)
	}
	return "changed: " + strings.Join(changed, ", ")
}

// needs is how long a part probably takes: a tenth longer than the last time, or as long as it may.
func (r record) needs() time.Duration {
	if r.Seconds == 0 {
		return limit
	}
	return min(limit, time.Duration(r.Seconds)*time.Second*11/10)
}

// queue returns the parts that are due, those that have never passed first and then the oldest.
func queue(parts []part, records map[string]record, why map[string]string) []part {
	q := slices.DeleteFunc(slices.Clone(parts), func(p part) bool { return why[p.name] == "" })
	slices.SortStableFunc(q, func(a, b part) int { return cmp.Compare(records[a.name].Date, records[b.name].Date) })
	return q
}

// next returns the first part of a queue that fits into the time that is left, or -1.
func next(q []part, records map[string]record, left time.Duration) int {
	return slices.IndexFunc(q, func(p part) bool { return records[p.name].needs() <= left })
}
