package main

import (
	"fmt"
	"strings"
)

// The lines of the README between which the blocks of the example stand.
const excerptBegins, excerptEnds = "<!-- from examples/ha-cluster/main.tf, by make docs -->\n", "<!-- until here -->\n"

// fill puts a text before the line ends, in place of what stands between the lines begins and ends. Without the line
// begins it is put in.
func fill(text, begins, ends, with string) (string, error) {
	before, after, found := strings.Cut("\n"+text, "\n"+ends)
	if !found {
		return "", fmt.Errorf("there is no line %q", strings.TrimSpace(ends))
	}
	before, _, _ = strings.Cut(before+"\n", "\n"+begins)
	return strings.TrimPrefix(strings.TrimRight(before, "\n")+"\n\n"+with+ends+after, "\n"), nil
}

// excerpted are the blocks of examples/ha-cluster/main.tf that the README shows.
var excerpted = []string{`resource "k8s_machine" "worker"`, `resource "k8s_control_plane" "this"`, `resource "k8s_worker_pool" "this"`}

// excerpt returns blocks of a configuration as they are.
func excerpt(config string) (string, error) {
	var blocks []string
	for _, head := range excerpted {
		_, body, found := strings.Cut("\n"+config, "\n"+head+" {\n")
		body, _, ends := strings.Cut(body, "\n}\n")
		if !found || !ends {
			return "", fmt.Errorf("examples/ha-cluster/main.tf has no block %s", head)
		}
		blocks = append(blocks, head+" {\n"+body+"\n}\n")
	}
	return "```terraform\n" + strings.Join(blocks, "\n") + "```\n", nil
}
