package lab

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/mirror"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/network"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/outside"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/registry"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/sources"
)

// internet holds the servers beyond the internet gateways of the VPCs.
type internet struct {
	archive                                   *outside.Archive
	line                                      outside.Line // between every client, also on this host, and all servers but the APIs
	archiveListener, webListener, apiListener net.Listener
	archiveLog, webLog                        outside.Log
	files                                     *mirror.Handler // nil in a bare lab
	artifacts                                 []served        // mirror and registry
}

// served is a handler and where it listens.
type served struct {
	handler http.Handler
	at      net.Listener
}

// Ports of the artifact mirror and the image registry.
const (
	mirrorPort   = 8080
	registryPort = 5000
)

// openInternet listens on the addresses of the archive, of the web server and of the AWS APIs. It does
// not serve yet.
func openInternet(ctx context.Context, in *network.Manager, archive, web, api netip.Addr, cacheDir string, log *slog.Logger) (*internet, error) {
	var world internet
	var err error
	if world.archiveListener, err = in.ListenInternet(ctx, netip.AddrPortFrom(archive, 80)); err != nil {
		return nil, fmt.Errorf("package archive: %w", err)
	}
	if world.webListener, err = in.ListenInternet(ctx, netip.AddrPortFrom(web, 80)); err != nil {
		return nil, fmt.Errorf("web server of the outside: %w", err)
	}
	if world.apiListener, err = in.ListenInternet(ctx, netip.AddrPortFrom(api, 80)); err != nil {
		return nil, fmt.Errorf("AWS APIs for instances: %w", err)
	}
	world.archive = outside.NewArchive(filepath.Join(cacheDir, "archive"), sources.DebianMirror(), &world.archiveLog, log)
	return &world, nil
}

// addArtifacts opens the mirror and the registry. They are in the lab's internet and not on the
// host, where a firewall that drops incoming packets would block them.
func (w *internet) addArtifacts(ctx context.Context, in *network.Manager, s settings, account *cloud.Account) error {
	images, err := registry.New(append([]string{s.ImagesDir}, s.MoreImages...)...) //nolint:contextcheck // reads local files only
	if err != nil {
		return fmt.Errorf("image registry: %w", err)
	}
	mirrorAt, err := in.ListenInternet(ctx, netip.AddrPortFrom(s.Artifacts, mirrorPort))
	if err != nil {
		return fmt.Errorf("artifact mirror: %w", err)
	}
	registryAt, err := in.ListenInternet(ctx, netip.AddrPortFrom(s.Artifacts, registryPort))
	if err != nil {
		return fmt.Errorf("image registry: %w", err)
	}
	w.files = mirror.New(s.MirrorDir)
	w.artifacts = []served{{w.files, mirrorAt}, {account.Registry(images), registryAt}}
	return nil
}
