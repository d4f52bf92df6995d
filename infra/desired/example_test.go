package desired_test

import (
	"fmt"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
)

func Example() {
	unit := desired.File{
		Path:    "/etc/systemd/system/hello.service",
		Mode:    0o644,
		Content: []byte("[Service]\nExecStart=/usr/bin/sleep infinity\n"),
	}
	state := desired.State{
		Files: []desired.File{unit},
		Units: []desired.Unit{{Name: "hello.service", Enabled: true, Active: true, RestartOn: []string{unit.Path}}},
	}
	fmt.Println(state.Validate())
	fmt.Println(desired.Merge(state, state).Validate())
	// Output:
	// <nil>
	// path /etc/systemd/system/hello.service is named twice
	// unit hello.service is wanted twice
}
