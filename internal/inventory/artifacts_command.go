package inventory

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/builtin"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/version"
)

const usage = `Usage: terraform-provider-k8s artifacts -kubernetes VERSION[,VERSION...] [flags]

Prints every file that the machines of a cluster download, with its SHA-256, and
every image with its digest. A site without access to the internet copies these
to its mirror (artifact_mirror) and its registry. The output is a file for
artifact_checksums. A file or image without checksum is a comment in it, and the
exit status is then 1.

`

// timeLimit is how long the whole command may take.
const timeLimit = 5 * time.Minute

// Command runs `terraform-provider-k8s artifacts`. It writes the list to out and, on request, the
// explanation of the flags to help.
func Command(ctx context.Context, args []string, out, help io.Writer) error {
	var v Versions
	images := DefaultImages()
	flags := flag.NewFlagSet("artifacts", flag.ContinueOnError)
	flags.SetOutput(help)
	flags.Usage = func() { _, _ = io.WriteString(help, usage); flags.PrintDefaults() }
	list := func(to *[]string, check func(version.Version) error) func(string) error {
		return func(s string) error {
			for one := range strings.SplitSeq(s, ",") {
				parsed, err := version.Parse(strings.TrimSpace(one))
				if err == nil {
					err = check(parsed)
				}
				if err != nil {
					return err
				}
				*to = append(*to, parsed.String())
			}
			return nil
		}
	}
	flags.Func("kubernetes", "`version`s of Kubernetes, such as 1.35.8,1.36.4 for an upgrade", list(&v.Kubernetes, version.CheckSupported))
	flags.Func("etcd", "`version`s of etcd (default "+artifact.DefaultEtcd+")", list(&v.Etcd, version.CheckEtcd))
	flags.Func("containerd", "`version`s of containerd (default "+artifact.DefaultContainerd+")", list(&v.Containerd, version.CheckContainerd))
	flags.Func("architectures", "`architecture`s of the machines: amd64, arm64 or amd64,arm64 (default "+artifact.AMD64+")", func(s string) error {
		for arch := range strings.SplitSeq(s, ",") {
			if arch != artifact.AMD64 && arch != artifact.ARM64 {
				return fmt.Errorf("%q is neither amd64 nor arm64", arch)
			}
			v.Architectures = append(v.Architectures, arch)
		}
		return nil
	})
	flags.StringVar(&v.Runc, "runc", artifact.DefaultRunc, "`version` of runc")
	flags.StringVar(&v.CNIPlugins, "cni-plugins", artifact.DefaultCNIPlugins, "`version` of the CNI plugins")
	flags.StringVar(&images.Sandbox, "sandbox-image", images.Sandbox, "`image` of pods' sandboxes")
	flags.StringVar(&images.CoreDNS, "coredns-image", images.CoreDNS, "`image` of CoreDNS")
	flags.StringVar(&images.MetricsServer, "metrics-server-image", images.MetricsServer, "`image` of metrics-server; empty when it is not installed")
	flags.Func("more-images", "`image`s of other addons, such as "+builtin.DefaultImage(builtin.CloudControllers)+","+builtin.DefaultImage(builtin.LocalPath), func(s string) error {
		images.More = append(images.More, strings.Split(s, ",")...)
		return nil
	})
	mirror := flags.String("mirror", "", "`URL` of a mirror to ask instead of upstream")
	checksums := flags.String("checksums", "", "`file` of sums that are known already, in the format of sha256sum")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	if len(v.Kubernetes) == 0 || flags.NArg() > 0 {
		return errors.New("artifacts needs -kubernetes and takes no arguments besides flags; -help lists them")
	}
	catalog, err := openCatalog(*mirror, *checksums)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeLimit, fmt.Errorf("not done within %s", timeLimit))
	defer cancel()
	found, err := Collect(ctx, catalog, v, images, Digest)
	if len(found.Files) == 0 {
		return err
	}
	return errors.Join(found.Write(out), err)
}

func openCatalog(mirror, checksums string) (*artifact.Catalog, error) {
	client := &http.Client{Timeout: 30 * time.Second}
	if checksums == "" {
		return artifact.NewCatalog(mirror, nil, client)
	}
	f, err := os.Open(checksums)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // read only
	return artifact.NewCatalog(mirror, f, client)
}
