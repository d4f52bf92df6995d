package lab

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"golang.org/x/sync/errgroup"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/ec2"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/metadata"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/network"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/objects"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/outside"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/sources"
)

// vpcNetwork is the network, with the metadata service, DNS and DHCP in every VPC.
type vpcNetwork struct {
	*network.Manager
	services *metadata.Servers
	// names makes the names of public load balancers resolve on the host.
	names func(context.Context) error
}

// Apply implements ec2.Network.
func (n *vpcNetwork) Apply(ctx context.Context, cfg network.Config) error {
	if err := n.Manager.Apply(ctx, cfg); err != nil {
		return err
	}
	vpcs := map[string]netip.Prefix{}
	for _, v := range cfg.VPCs {
		vpcs[v.ID] = v.CIDR
	}
	if err := n.services.Sync(ctx, vpcs); err != nil {
		return err
	}
	return n.names(ctx)
}

// Serve runs the daemon until ctx ends, and calls announce once it serves. It continues from the
// state that the last daemon left. Machines and network keep running when it ends. It must be run
// by Keep, which excludes a second daemon.
func (l *Lab) Serve(ctx context.Context, log *slog.Logger, announce func()) error {
	s, err := l.readSettings()
	if err != nil {
		return err
	}
	slice, err := network.Claim(l.dir, sources.Addresses(ctx)...)
	if err != nil {
		return err
	}
	servers := slice.Servers()
	archiveAt, webAt, insideAt := servers[0], servers[1], servers[2]
	s.Operator, s.Slice, s.Artifacts = slice.Operator, slice.Prefix, servers[3]
	net, err := network.Open(ctx, slice)
	if err != nil {
		return err
	}
	defer net.Close()
	//nolint:contextcheck // it watches machines until it is closed
	machines, err := machine.NewManager(l.dir, s.Machines, s.MachineImages)
	if err != nil {
		return err
	}
	defer machines.Close()

	calls := l.rotated(callsFile)
	defer calls.Close() //nolint:errcheck // what was written is in the file
	s3Log := l.rotated(s3LogFile)
	defer s3Log.Close() //nolint:errcheck // likewise
	store := objects.New(objects.Config{Program: l.gateway, Dir: l.file(objectsDir), Region: s.Region, Output: s3Log, Log: log})
	defer store.Close()
	vpcs := &vpcNetwork{Manager: net}
	quotas, err := ec2.QuotasOf(s.Quotas)
	if err != nil {
		return err
	}
	account, err := cloud.Open(cloud.Config{
		Region: s.Region, Images: amis(s.MachineImages), PublicIPs: slice.PublicIPs(),
		Credentials: aws.Credentials{AccessKeyID: s.AccessKeyID, SecretAccessKey: s.SecretAccessKey},
		Quotas:      quotas,
		StateFile:   l.file(stateFile), ParametersFile: l.file(parametersFile), SessionsFile: l.file(sessionsFile), IdentitiesFile: l.file(identitiesFile), BalancersFile: l.file(balancersFile), BucketsFile: l.file(bucketsFile), BootID: bootID(),
		Network: vpcs, Machines: machines, Objects: store, Log: log, Calls: slog.New(slog.NewJSONHandler(calls, nil)),
	})
	if err != nil {
		return err
	}
	defer account.Close()
	if err := store.Ask(ctx, account.Authority(store.Key())); err != nil {
		return err
	}
	vpcs.services = metadata.New(account.Instances(), net, outside.Names(archiveAt, webAt, insideAt), log)
	defer vpcs.services.Close()
	vpcs.names = func(ctx context.Context) error { return host.This().Names(ctx, l.dir, account.PublicNames()) }
	if err := account.Start(ctx); err != nil {
		return err
	}
	world, err := openInternet(ctx, net, archiveAt, webAt, insideAt, s.CacheDir, log)
	if err != nil {
		return err
	}
	if !s.Bare {
		if err := world.addArtifacts(ctx, net, s, account); err != nil {
			return err
		}
	}
	return l.listen(ctx, s, machines, account, world, log, announce)
}

// amis are the machine images as EC2 lists them.
func amis(images []machine.Image) []ec2.Image {
	var out []ec2.Image
	for _, i := range images {
		if out = append(out, ami(i)); i.Release == "" {
			continue
		}
		// No machine here has an arm64 processor, and so no zone offers types with one.
		sum := sha256.Sum256([]byte("arm64 " + i.ID))
		out = append(out, ec2.Image{ID: "ami-" + hex.EncodeToString(sum[:])[:17], Name: strings.Replace(i.Name, "amd64", "arm64", 1), Release: i.Release, ARM: true})
	}
	return out
}

// ami is a machine image as EC2 lists it. One that is not a release of Debian belongs to the account.
func ami(i machine.Image) ec2.Image {
	out := ec2.Image{ID: i.ID, Name: i.Name, Release: i.Release, SizeGiB: i.SizeGiB}
	if i.Release == "" {
		out.Owner = cloud.DefaultAccountID
	}
	return out
}

// publish returns a function that publishes the newest image of a release of Debian again, or a variant of it, under a
// new id, which it returns.
func publish(l *Lab, s *settings, machines *machine.Manager, account *cloud.Account) func(release, variant string) (string, error) {
	var mu sync.Mutex
	return func(release, variant string) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		of := slices.IndexFunc(s.MachineImages, func(i machine.Image) bool { return i.Release == release })
		if of < 0 || release == "" {
			return "", fmt.Errorf("there is no image of Debian %q", release)
		}
		img := s.MachineImages[of]
		if variant != "" {
			if s.Machines != machine.Container {
				return "", errors.New("variants of images are for containers")
			}
			var err error
			if img, err = img.As(variant); err != nil {
				return "", err
			}
		}
		img = img.Republished(len(s.MachineImages))
		s.MachineImages = slices.Insert(s.MachineImages, 0, img)
		if err := l.writeSettings(*s); err != nil {
			return "", err
		}
		machines.Publish(img)
		listed := ami(img)
		listed.Created = time.Now().UTC()
		account.Publish(listed)
		return img.ID, nil
	}
}

// listen serves the API and the internet's servers until ctx ends.
func (l *Lab) listen(ctx context.Context, s settings, machines *machine.Manager, account *cloud.Account, world *internet, log *slog.Logger, announce func()) error {
	apiAt, err := (&net.ListenConfig{}).Listen(ctx, "tcp", netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), s.APIPort).String())
	if err != nil {
		return fmt.Errorf("API: %w", err)
	}
	s.APIPort = apiAt.Addr().(*net.TCPAddr).AddrPort().Port()
	if err := l.writeSettings(s); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	api := withToken(s.Token, newControl(account, world, Daemon{PID: os.Getpid(), Keeper: os.Getppid(), Started: time.Now().UTC()}, publish(l, &s, machines, account)))
	servers := slices.Concat([]served{{world.archive, world.archiveListener}, {outside.Web(&world.webLog), world.webListener}}, world.artifacts)
	for n := range servers {
		servers[n].handler = world.line.Handler(servers[n].handler)
	}
	servers = append(servers, served{api, apiAt})
	servers = append(servers, served{account.API(), world.apiListener}) // without the control endpoint: instances are not trusted
	for _, srv := range servers {
		server := &http.Server{Handler: srv.handler, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn)}
		g.Go(func() error {
			if err := server.Serve(srv.at); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serving on %s: %w", srv.at.Addr(), err)
			}
			return nil
		})
		g.Go(func() error {
			<-ctx.Done()
			grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			return errors.Join(server.Shutdown(grace), server.Close())
		})
	}
	log.Info("the lab is up", "api", s.endpoint(), "mirror", s.mirror(), "registry", s.registry())
	announce()
	if err := g.Wait(); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// bootID identifies the host's boot. No machine survives a reboot of the host.
func bootID() string {
	raw, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(raw))
}
