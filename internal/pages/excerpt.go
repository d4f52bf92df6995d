package main

import (
	"fmt"
	"strings"
)

// ends is the line after what is filled in. It stays, so that the next run finds the place again.
const ends = "<!-- until here -->\n"

// fill puts a text between the line begins and the line ends.
func fill(file, text, begins, with string) (string, error) {
	before, rest, begun := strings.Cut(text, begins)
	_, after, ended := strings.Cut(rest, ends)
	if !begun || !ended {
		return "", fmt.Errorf("%s has no lines %q and %q", file, strings.TrimSpace(begins), strings.TrimSpace(ends))
	}
	return before + begins + with + ends + after, nil
}

// indexBegins is the line of docs/index.md after which the lists of pages stand.
const indexBegins = "<!-- the front matter of all pages, by make docs -->\n"

// excerptBegins is the line of the README after which the blocks of the example stand.
const excerptBegins = "<!-- from examples/ha-cluster/main.tf, by make docs -->\n"

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
