package rollout

import (
	"errors"
	"testing"
)

// Each test describes a situation with one line per machine and compares the text of the plan or of
// the error.

func TestStopped(t *testing.T) {
	roll := func(action Action, machines ...string) []Step {
		var out []Step
		for _, m := range machines {
			out = append(out, Step{Machine: m, Action: action})
		}
		return out
	}
	cause := errors.New("machine b: it failed")
	for _, tt := range []struct {
		name        string
		taken, left []Step
		want        string
	}{
		{"at the end", roll(ActionRoll, "a", "b"), nil, "machine b: it failed"},
		{"half way", roll(ActionRoll, "a", "b"), append(roll(ActionRoll, "c", "d"), roll(Action{Name: "apply to managers", Disturbs: true}, "a", "b", "c", "d")...),
			"machine b: it failed\nthe roll stopped there; not touched: c, d. Remove the cause and apply again: the roll continues from there"},
		{"what is left disturbs nobody", roll(ActionInstall, "b"), roll(ActionQuiet, "c"), "machine b: it failed"},
	} {
		if got := Stopped(cause, tt.taken, tt.left); got.Error() != tt.want || !errors.Is(got, cause) {
			t.Errorf("%s: %q, wanted %q", tt.name, got, tt.want)
		}
	}
}
