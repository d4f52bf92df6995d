package plans

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"sigs.k8s.io/yaml"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/bench/hosts"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/account"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud"
	labec2 "github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/ec2"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/machine"
)

// The networks that are local while the bench runs: the machines' private addresses, and the public
// ones (RFC 2544).
const (
	privateNetwork = "10.240.0.0/16"
	publicNetwork  = "198.18.0.0/15"
)

// most is how many machines an account may have.
const most = 500

// site is an AWS account whose instances are machines that cost little.
type site struct {
	account.QuietMachines
	cloud  *cloud.Account
	fleet  *hosts.Fleet
	client *infraaws.Client // the bench's own, for the keys of the cluster

	mu    sync.Mutex
	hosts map[string]*hosts.Host // by instance
	at    map[netip.Addr]*hosts.Host
	calls map[string]int // by service: "ec2"
}

func newSite(ctx context.Context, dir, url string, change ...func(*cloud.Config)) (*site, error) {
	s := &site{hosts: map[string]*hosts.Host{}, calls: map[string]int{}}
	var err error
	if s.fleet, err = hosts.New(dir); err != nil {
		return nil, err
	}
	first := netip.MustParsePrefix(publicNetwork).Addr().Next()
	s.cloud, err = account.Open(ctx, append([]func(*cloud.Config){func(c *cloud.Config) {
		c.Machines, c.PublicIPs = s, account.Addresses(first, most)
		c.Quotas = labec2.Quotas{VCPUs: 8 * most, Addresses: most}
	}}, change...)...)
	if err != nil {
		return nil, err
	}
	s.client, err = infraaws.New(ctx, infraaws.Config{Region: "us-east-1", AccessKey: account.AccessKey, SecretKey: account.SecretKey,
		Endpoints: infraaws.Endpoints{EC2: url, ELB: url, S3: url, SSM: url, STS: url}})
	return s, err
}

// ServeHTTP serves the account's API and counts calls by service.
func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// Credential=KEY/DATE/REGION/SERVICE/aws4_request
	if fields := strings.Split(r.Header.Get("Authorization"), "/"); len(fields) > 4 {
		s.mu.Lock()
		s.calls[fields[3]]++
		s.mu.Unlock()
	}
	s.cloud.ServeHTTP(w, r)
}

// Start boots an instance's machine.
func (s *site) Start(ctx context.Context, spec machine.Spec) error {
	s.mu.Lock()
	booted := s.hosts[spec.ID] != nil
	s.mu.Unlock()
	if !booted {
		h, err := s.boot(spec.ID)
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.hosts[spec.ID], s.at = h, nil
		s.mu.Unlock()
	}
	return s.QuietMachines.Start(ctx, spec)
}

// boot does what cloud-init does at the first boot. As a machine does, it asks the metadata service: that is no call of EC2.
func (s *site) boot(id string) (*hosts.Host, error) {
	all := s.cloud.Overview().Instances
	n := slices.IndexFunc(all, func(i labec2.InstanceOverview) bool { return i.ID == id })
	if n < 0 {
		return nil, fmt.Errorf("there is no instance %s", id)
	}
	address, err := netip.ParseAddr(all[n].PrivateIP)
	if err != nil {
		return nil, fmt.Errorf("instance %s: %w", id, err)
	}
	said, ok := s.cloud.Instances().InstanceByAddress(all[n].VPC, address)
	if !ok {
		return nil, fmt.Errorf("the metadata service does not know instance %s", id)
	}
	var config struct {
		Hostname string            `json:"hostname"`
		Keys     map[string]string `json:"ssh_keys"`
		Users    []struct {
			Name string   `json:"name"`
			Keys []string `json:"ssh_authorized_keys"`
		} `json:"users"`
	}
	if err := yaml.Unmarshal(said.UserData, &config); err != nil {
		return nil, err
	}
	if len(config.Users) != 1 {
		return nil, errors.New("the user data do not have one user")
	}
	spec := hosts.Spec{
		Name: config.Hostname, Address: address, User: config.Users[0].Name, LoginKeys: config.Users[0].Keys,
		HostKey: config.Keys["ed25519_private"], HostPublicKey: config.Keys["ed25519_public"],
	}
	if strings.HasPrefix(spec.Name, "controller") {
		spec.Real = []string{"etcd.service", "kube-apiserver.service"}
	}
	return s.fleet.Add(id, spec)
}

// find returns the machine with a public address.
func (s *site) find(address netip.Addr) *hosts.Host {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.at[address]; h != nil {
		return h
	}
	s.at = map[netip.Addr]*hosts.Host{}
	for _, i := range s.cloud.Overview().Instances {
		if a, err := netip.ParseAddr(i.PublicIP); err == nil && s.hosts[i.ID] != nil {
			s.at[a] = s.hosts[i.ID]
		}
	}
	return s.at[address]
}

// named returns the machine of that name.
func (s *site) named(name string) *hosts.Host {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.hosts {
		if h.Name == name {
			return h
		}
	}
	return nil
}

// takeCalls returns how often each service was called, and resets the counts.
func (s *site) takeCalls() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.calls
	s.calls = map[string]int{}
	return calls
}
