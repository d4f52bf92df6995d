package component

import (
	"bytes"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/coreos/go-systemd/v22/unit"
	"github.com/pelletier/go-toml/v2"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
)

// The parts of containerd's configuration, version 3, that this project states.
// (https://github.com/containerd/containerd/blob/main/docs/cri/config.md)
type (
	containerdConfig struct {
		Version int               `toml:"version"`
		Plugins containerdPlugins `toml:"plugins"`
	}
	containerdPlugins struct {
		Images  criImages  `toml:"io.containerd.cri.v1.images"`
		Runtime criRuntime `toml:"io.containerd.cri.v1.runtime"`
	}
	criImages struct {
		Snapshotter  string            `toml:"snapshotter"`
		PinnedImages map[string]string `toml:"pinned_images"`
		Registry     struct {
			ConfigPath string `toml:"config_path"`
		} `toml:"registry"`
	}
	criRuntime struct {
		Containerd struct {
			DefaultRuntimeName string                `toml:"default_runtime_name"`
			Runtimes           map[string]criHandler `toml:"runtimes"`
		} `toml:"containerd"`
		CNI struct {
			ConfDir string `toml:"conf_dir"`
		} `toml:"cni"`
	}
	criHandler struct {
		RuntimeType string `toml:"runtime_type"`
		Options     struct {
			BinaryName    string `toml:"BinaryName"`
			SystemdCgroup bool   `toml:"SystemdCgroup"`
		} `toml:"options"`
	}
)

func (w *worker) addContainerd() error {
	_, kubelet, err := w.kubeletConfig()
	if err != nil {
		return err
	}
	config, err := w.containerdFile(kubelet.CgroupDriver == "systemd")
	if err != nil {
		return fmt.Errorf("containerd configuration: %w", err)
	}
	mirrors, err := registryMirrorFiles(w.spec.RegistryMirrors)
	if err != nil {
		return err
	}
	inArchive := func(program string) desired.Install {
		return desired.Install{Member: "bin/" + program, Path: binPath(program)}
	}
	containerd, err := binary(w.spec.Artifacts, artifact.Containerd, inArchive("containerd"), inArchive("containerd-shim-runc-v2"), inArchive("ctr"))
	if err != nil {
		return err
	}
	runc, err := binary(w.spec.Artifacts, artifact.Runc, desired.Install{Path: runcPath})
	if err != nil {
		return err
	}
	w.m.State.Binaries = append(w.m.State.Binaries, containerd, runc)
	option := unit.NewUnitOption
	w.addFiles(config)
	w.addFiles(mirrors...)
	w.addFiles(service{
		description:   "containerd container runtime",
		documentation: "https://containerd.io/docs/",
		kind:          typeNotify,
		exec:          binPath("containerd"),
		options: []*unit.UnitOption{
			option("Service", "Delegate", "yes"),
			// Containers outlive a restart of containerd.
			option("Service", "KillMode", "process"),
			option("Service", "LimitNOFILE", "1048576"),
			option("Service", "LimitNPROC", "infinity"),
			option("Service", "LimitCORE", "infinity"),
			option("Service", "TasksMax", "infinity"),
			option("Service", "OOMScoreAdjust", "-999"),
		},
	}.file(ContainerdUnit))
	// Shims, runc, registry hosts and CNI configuration are read when they are used.
	w.m.State.Units = append(w.m.State.Units, running(ContainerdUnit, binPath("containerd"), ContainerdConfig))
	return nil
}

func (w *worker) containerdFile(systemdCgroup bool) (desired.File, error) {
	var c containerdConfig
	c.Version = 3
	images := &c.Plugins.Images
	images.Snapshotter = "overlayfs"
	images.PinnedImages = map[string]string{"sandbox": w.spec.SandboxImage}
	images.Registry.ConfigPath = ContainerdHostsDir
	var runc criHandler
	runc.RuntimeType = "io.containerd.runc.v2"
	runc.Options.BinaryName = runcPath
	runc.Options.SystemdCgroup = systemdCgroup
	runtime := &c.Plugins.Runtime
	runtime.Containerd.DefaultRuntimeName = "runc"
	runtime.Containerd.Runtimes = map[string]criHandler{"runc": runc}
	runtime.CNI.ConfDir = cniConfDir

	base, err := marshalTOML(c)
	if err != nil {
		return desired.File{}, err
	}
	content := base
	if len(w.spec.ContainerdConfig) > 0 {
		m := map[string]any{}
		if err := toml.Unmarshal(base, &m); err != nil {
			return desired.File{}, err
		}
		over, err := normalize(w.spec.ContainerdConfig)
		if err != nil {
			return desired.File{}, err
		}
		if content, err = marshalTOML(mergeMaps(m, over)); err != nil {
			return desired.File{}, err
		}
	}
	return desired.File{Path: ContainerdConfig, Mode: 0o644, Content: content}, nil
}

// registryHosts is a hosts.toml of containerd
// (https://github.com/containerd/containerd/blob/main/docs/hosts.md).
type registryHosts struct {
	Server string                  `toml:"server,omitempty"`
	Host   map[string]registryHost `toml:"host"`
}

type registryHost struct {
	Capabilities []string `toml:"capabilities"`
	OverridePath bool     `toml:"override_path,omitempty"`
}

var registryName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]{1,5})?$`)

// registryMirrorFiles returns a hosts.toml per registry, which sends pulls to
// the mirror first and to the registry itself when the mirror lacks the image.
func registryMirrorFiles(mirrors map[string]string) ([]desired.File, error) {
	var out []desired.File
	for _, registry := range slices.Sorted(maps.Keys(mirrors)) {
		mirror, err := url.Parse(mirrors[registry])
		if err != nil || (mirror.Scheme != "http" && mirror.Scheme != "https") || mirror.Host == "" {
			return nil, fmt.Errorf("mirror %q of registry %s is not an http or https URL", mirrors[registry], registry)
		}
		dir, server := registry, "https://"+registry
		switch {
		case registry == "*":
			dir, server = "_default", ""
		case !registryName.MatchString(registry):
			return nil, fmt.Errorf("%q is not a registry: want a host name, with a port if need be, or *", registry)
		case registry == "docker.io":
			server = "https://registry-1.docker.io"
		}
		content, err := marshalTOML(registryHosts{
			Server: server,
			Host: map[string]registryHost{strings.TrimRight(mirror.String(), "/"): {
				Capabilities: []string{"pull", "resolve"},
				OverridePath: strings.Trim(mirror.Path, "/") != "",
			}},
		})
		if err != nil {
			return nil, fmt.Errorf("mirror of registry %s: %w", registry, err)
		}
		out = append(out, desired.File{Path: ContainerdHostsDir + "/" + dir + "/hosts.toml", Mode: 0o644, Content: content})
	}
	return out, nil
}

func marshalTOML(v any) ([]byte, error) {
	var b bytes.Buffer
	e := toml.NewEncoder(&b)
	e.SetIndentTables(true)
	err := e.Encode(v)
	return b.Bytes(), err
}
