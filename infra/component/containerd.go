package component

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/coreos/go-systemd/v22/unit"
	"github.com/pelletier/go-toml/v2"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
)

// ContainerdSpec holds the settings of containerd. The releases are for information: the Artifacts
// decide what is installed.
type ContainerdSpec struct {
	Version      string
	RuncVersion  string
	SandboxImage string // empty means DefaultSandboxImage
	// RegistryMirrors maps a registry ("registry.k8s.io", or "*" for all others) to the URL that
	// serves its images. A URL with a path is used unchanged; without one, containerd appends /v2.
	RegistryMirrors map[string]string
	Config          map[string]any // merged over containerd's config.toml
}

// Sandbox returns the image of pod sandboxes.
func (s ContainerdSpec) Sandbox() string { return cmp.Or(s.SandboxImage, DefaultSandboxImage) }

// imageName is roughly what containerd accepts as the name of an image
// (https://github.com/distribution/reference).
var imageName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/:@-]*$`)

func (s ContainerdSpec) check() (errs invalid.Fields) {
	if s.SandboxImage != "" && !imageName.MatchString(s.SandboxImage) {
		errs.Say("sandbox_image", "Unusable image", "%q is not the name of an image, such as %s.", s.SandboxImage, DefaultSandboxImage)
	}
	for _, registry := range slices.Sorted(maps.Keys(s.RegistryMirrors)) {
		_, err := registryMirrorFile(registry, s.RegistryMirrors[registry])
		errs.Add(fmt.Sprintf("registry_mirrors[%q]", registry), "Unusable registry mirror", err)
	}
	checkOwnedFields(&errs, "containerd_config", artifact.Containerd, s.Config)
	return errs
}

// containerdFiles are the files that readContainerd reads; the last is a pattern.
var (
	containerdProgram = binPath(artifact.Containerd)
	containerdFiles   = []string{ContainerdConfig, ContainerdHostsDir + "/*/hosts.toml"}
)

// runcRuntime is the type of the runtimes that are runc.
const runcRuntime = "io.containerd.runc.v2"

// The parts of containerd's configuration, version 3, that this project sets
// (https://github.com/containerd/containerd/blob/main/docs/cri/config.md).
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
	mirrors, err := registryMirrorFiles(w.spec.Containerd.RegistryMirrors)
	if err != nil {
		return err
	}
	containerd, err := binary(w.spec.Artifacts, artifact.Containerd)
	if err != nil {
		return err
	}
	runc, err := binary(w.spec.Artifacts, artifact.Runc)
	if err != nil {
		return err
	}
	w.m.State.Binaries = append(w.m.State.Binaries, containerd, runc)
	option := unit.NewUnitOption
	w.addFiles(w.configs.containerd)
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
	// containerd reads shims, runc, registry hosts and the CNI configuration on every use.
	w.m.State.Units = append(w.m.State.Units, running(ContainerdUnit, binPath("containerd"), ContainerdConfig))
	return nil
}

// containerdFile returns the configuration with the user's settings. Its cgroups are the kubelet's.
func (s WorkerSpec) containerdFile(kubelet *kubeletconfig.KubeletConfiguration) (_ desired.File, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("containerd configuration: %w", err)
		}
	}()
	var c containerdConfig
	c.Version = 3
	images := &c.Plugins.Images
	images.Snapshotter = "overlayfs"
	images.PinnedImages = map[string]string{"sandbox": s.Containerd.Sandbox()}
	images.Registry.ConfigPath = ContainerdHostsDir
	var runc criHandler
	runc.RuntimeType = runcRuntime
	runc.Options.BinaryName = runcPath
	runc.Options.SystemdCgroup = kubelet.CgroupDriver == "systemd"
	runtime := &c.Plugins.Runtime
	runtime.Containerd.DefaultRuntimeName = "runc"
	runtime.Containerd.Runtimes = map[string]criHandler{"runc": runc}
	runtime.CNI.ConfDir = cniConfDir

	base, err := marshalTOML(c)
	if err != nil {
		return desired.File{}, err
	}
	// As a map, so that the user's settings move none of the provider's.
	m := map[string]any{}
	if err := toml.Unmarshal(base, &m); err != nil {
		return desired.File{}, err
	}
	over, err := normalize(s.Containerd.Config)
	if err != nil {
		return desired.File{}, err
	}
	merged := mergeMaps(m, over)
	content, err := marshalTOML(merged)
	if err != nil {
		return desired.File{}, err
	}
	text, err := marshalTOML(hideFields(artifact.Containerd, merged, over))
	if err != nil {
		return desired.File{}, err
	}
	return desired.File{Path: ContainerdConfig, Mode: 0o644, Content: content, Text: text}, nil
}

// readContainerd sets the settings found on a machine. It must run after readKubelet.
func (w *worker) readContainerd(f Found) error {
	w.spec.Containerd = ContainerdSpec{Version: f.Releases[containerdProgram], RuncVersion: f.Releases[runcPath]}
	s := &w.spec.Containerd
	var err error
	if s.RegistryMirrors, err = registryMirrorsOf(f); err != nil {
		return err
	}
	var config containerdConfig
	if err := f.toml(ContainerdConfig, &config); err != nil {
		return err
	}
	s.SandboxImage = config.Plugins.Images.PinnedImages["sandbox"]
	_, kubelet, err := w.spec.kubeletConfig()
	if err != nil {
		return err
	}
	file, err := w.spec.containerdFile(kubelet)
	if err != nil {
		return fmt.Errorf("worker %s: %w", w.node.Name, err)
	}
	found, standard := map[string]any{}, map[string]any{}
	if err := f.toml(ContainerdConfig, &found); err != nil {
		return err
	}
	if err := toml.Unmarshal(file.Content, &standard); err != nil {
		return err
	}
	s.Config = beyond(found, standard)
	return nil
}

// registryHosts is the content of containerd's hosts.toml
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

// registryMirrorFiles returns one hosts.toml per registry.
func registryMirrorFiles(mirrors map[string]string) ([]desired.File, error) {
	var out []desired.File
	for _, registry := range slices.Sorted(maps.Keys(mirrors)) {
		file, err := registryMirrorFile(registry, mirrors[registry])
		if err != nil {
			return nil, err
		}
		out = append(out, file)
	}
	return out, nil
}

// registryMirrorFile returns the hosts.toml of a registry. It sends pulls to the mirror first, and
// to the registry if the mirror lacks the image.
func registryMirrorFile(registry, at string) (desired.File, error) {
	mirror, err := url.Parse(at)
	if err != nil || (mirror.Scheme != "http" && mirror.Scheme != "https") || mirror.Host == "" {
		return desired.File{}, fmt.Errorf("mirror %q of registry %s is not an http or https URL", at, registry)
	}
	dir, server := registry, "https://"+registry
	switch {
	case registry == "*":
		dir, server = "_default", ""
	case !registryName.MatchString(registry):
		return desired.File{}, fmt.Errorf("%q is not a registry: want a host name, with a port if need be, or *", registry)
	case registry == "docker.io":
		server = "https://registry-1.docker.io"
	}
	render := func(at string) ([]byte, error) {
		return marshalTOML(registryHosts{
			Server: server,
			Host: map[string]registryHost{strings.TrimRight(at, "/"): {
				Capabilities: []string{"pull", "resolve"},
				OverridePath: strings.Trim(mirror.Path, "/") != "",
			}},
		})
	}
	content, err := render(mirror.String())
	text, err2 := render(hideURL(mirror))
	if err := errors.Join(err, err2); err != nil {
		return desired.File{}, fmt.Errorf("mirror of registry %s: %w", registry, err)
	}
	return desired.File{Path: ContainerdHostsDir + "/" + dir + "/hosts.toml", Mode: 0o644, Content: content, Text: text}, nil
}

// registryMirrorsOf is the inverse of registryMirrorFiles.
func registryMirrorsOf(f Found) (map[string]string, error) {
	var out map[string]string
	for _, p := range slices.Sorted(maps.Keys(f.Files)) {
		dir, file := path.Split(p)
		if file != "hosts.toml" || path.Dir(path.Clean(dir)) != ContainerdHostsDir {
			continue
		}
		var hosts registryHosts
		if err := f.toml(p, &hosts); err != nil {
			return nil, err
		}
		registry := path.Base(dir)
		if registry == "_default" {
			registry = "*"
		}
		for url := range hosts.Host {
			if out == nil {
				out = map[string]string{}
			}
			out[registry] = url
		}
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
