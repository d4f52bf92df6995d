package flags

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"
	proxyconfig "k8s.io/kube-proxy/config/v1alpha1"
	schedulerconfig "k8s.io/kube-scheduler/config/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/setting"
)

var update = flag.Bool("update", false, "write the names of flags and fields to infra/setting")

// containerdReleases are the releases of containerd in the cache.
var containerdReleases = []string{"2.2.0", "2.3.7"}

// TestSettings compares the lists of package setting with the programs: each has exactly the flags and the fields
// of all releases, and none is unclassified. With -update the names are written.
func TestSettings(t *testing.T) {
	names := map[string]map[setting.Kind][]string{}
	add := func(program string, kind setting.Kind, more ...string) {
		if names[program] == nil {
			names[program] = map[setting.Kind][]string{}
		}
		names[program][kind] = slices.Compact(slices.Sorted(slices.Values(append(names[program][kind], more...))))
	}
	for _, v := range versions {
		control, err := catalog(t).ControlPlaneSet(v)
		control = set(t, control, err)
		workers, err := catalog(t).WorkerSet(v, "", "", "", true)
		for _, a := range slices.Concat(control, set(t, workers, err)) {
			switch a.Name {
			case artifact.KubeAPIServer, artifact.KubeControllerManager, artifact.KubeScheduler, artifact.Kubelet, artifact.KubeProxy:
				add(a.Name, setting.Flag, flagsIn(run(t, program(t, a, ""), "--help"))...)
			}
		}
	}
	for _, v := range []string{artifact.DefaultEtcd, artifact.NextEtcd} {
		list, err := catalog(t).EtcdSet(v)
		etcd := program(t, find(t, set(t, list, err), artifact.Etcd), "etcd-v"+v+"-linux-amd64/etcd")
		add(artifact.Etcd, setting.Flag, flagsIn(run(t, etcd, "--help"))...)
	}
	for program, config := range map[string]any{
		artifact.Kubelet: kubeletconfig.KubeletConfiguration{}, artifact.KubeProxy: proxyconfig.KubeProxyConfiguration{},
		artifact.KubeScheduler: schedulerconfig.KubeSchedulerConfiguration{},
	} {
		add(program, setting.Field, fieldsOf(reflect.TypeOf(config), "")...)
	}
	for _, v := range containerdReleases {
		list, err := catalog(t).WorkerSet(versions[0], v, "", "", true)
		containerd := program(t, find(t, set(t, list, err), artifact.Containerd), "bin/containerd")
		defaults := map[string]any{}
		if err := toml.Unmarshal([]byte(run(t, containerd, "config", "default")), &defaults); err != nil {
			t.Fatal(err)
		}
		add(artifact.Containerd, setting.Field, pathsIn(defaults, "")...)
	}
	for _, program := range slices.Sorted(maps.Keys(names)) {
		compareSettings(t, program, names[program])
	}
}

func compareSettings(t *testing.T, program string, names map[setting.Kind][]string) {
	t.Helper()
	file := filepath.Join("..", "..", "..", "infra", "setting", program+".txt")
	text, err := os.ReadFile(file)
	if err != nil && !*update {
		t.Fatal(err)
	}
	list, err := setting.Parse(string(text))
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	comment, _, _ := strings.Cut(string(text), "\n\n")
	was := list.String()
	for kind, have := range names {
		list.Update(kind, have)
		if unknown := list.Names(kind, setting.Unclassified); len(unknown) > 0 {
			t.Errorf("%s: nobody has looked at these, each a %s: %s. Find out what it means to set them, and put them into a class of %s", program, kind, strings.Join(unknown, " "), file)
		}
	}
	if now := list.String(); now != was {
		if *update {
			write(t, file, comment+"\n"+now)
			return
		}
		t.Errorf("%s: the releases have other names than %s: run go test ./internal/e2e/flags -run TestSettings -update", program, file)
	}
}

var listedFlag = regexp.MustCompile(`(?m)^ {2,8}(?:-\w, |etcd )?(?:    )?--([a-z0-9][a-z0-9.-]*)(?: |$)`)

// flagsIn returns the flags in a program's help.
func flagsIn(help string) []string {
	var out []string
	for _, m := range listedFlag.FindAllStringSubmatch(help, -1) {
		if m[1] != "help" && m[1] != "version" {
			out = append(out, m[1])
		}
	}
	return out
}

// fieldsOf returns the paths of the fields of a configuration, to the first list or map on each.
func fieldsOf(t reflect.Type, below string) []string {
	var out []string
	for i := range t.NumField() {
		f := t.Field(i)
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		of := f.Type
		if of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		nested := of.Kind() == reflect.Struct && !reflect.PointerTo(of).Implements(reflect.TypeFor[interface{ UnmarshalJSON([]byte) error }]())
		switch {
		case tag == "" && f.Anonymous, options == "inline":
			if f.Name != "TypeMeta" {
				out = append(out, fieldsOf(of, below)...)
			}
		case nested && of.NumField() > 0:
			out = append(out, fieldsOf(of, below+tag+".")...)
		case tag != "":
			out = append(out, below+tag)
		}
	}
	return out
}

// pathsIn returns the paths of the values of a configuration.
func pathsIn(config map[string]any, below string) []string {
	var out []string
	for name, v := range config {
		if members, ok := v.(map[string]any); ok && len(members) > 0 {
			out = append(out, pathsIn(members, below+name+".")...)
		} else {
			out = append(out, below+name)
		}
	}
	return out
}
