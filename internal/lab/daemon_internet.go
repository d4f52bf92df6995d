package lab

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/network"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/outside"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/sources"
)

// internet holds the servers beyond the internet gateways of the VPCs.
type internet struct {
	archive                                   *outside.Archive
	line                                      outside.Line // between every client, also on this host, and all servers but the APIs
	archiveListener, webListener, apiListener net.Listener
	archiveLog, webLog                        outside.Log
}

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
