package instances_test

import (
	"path/filepath"
	"strings"
	"testing"
)

// testColleague is a second working directory with the same configuration and a state of its own.
// Nothing of the running cluster is adopted, changed or destroyed, and the refusal says who has it.
func (w *world) testColleague(t *testing.T) {
	was := w.Units(t)
	theirs := suite.Workspace(t, "colleague", suite.CLI, filepath.Join(suite.Root, "examples", "ha-cluster"))
	suite.Bind(t, theirs, "demo")
	out, err := theirs.Run(t.Context(), "apply", "-auto-approve", "-no-color")
	said := out
	if err != nil {
		said += err.Error()
	}
	said = strings.Join(strings.Fields(strings.ReplaceAll(said, "│", "")), " ")
	// The network and the keys; nothing else is tried without them.
	if err == nil || strings.Count(said, "belongs to another state: claimed by arn:aws:") != 2 || !strings.Contains(said, "`adopt = true`") {
		t.Errorf("the second state's apply: %v\n%s", err, out)
	}
	if _, err := theirs.Destroy(t.Context()); err != nil {
		t.Errorf("the second state's destroy: %v", err)
	}
	w.same(t, was)
	w.NoChanges(t)
}
