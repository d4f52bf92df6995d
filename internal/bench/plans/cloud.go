package plans

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
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
	client *infraaws.Client // the bench's own

	mu    sync.Mutex
	hosts map[string]*hosts.Host // by instance
	at    map[netip.Addr]*hosts.Host
	calls map[string]int // by service: "ec2"
}

func newSite(ctx context.Context, dir, url string) (*site, error) {
	s := &site{hosts: map[string]*hosts.Host{}, calls: map[string]int{}}
	var err error
	if s.fleet, err = hosts.New(dir); err != nil {
		return nil, err
	}
	first := netip.MustParsePrefix(publicNetwork).Addr().Next()
	s.cloud, err = account.Open(ctx, func(c *cloud.Config) {
		c.Machines, c.PublicIPs = s, account.Addresses(first, most)
		c.Quotas = labec2.Quotas{VCPUs: 8 * most, Addresses: most}
	})
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
		h, err := s.boot(ctx, spec.ID)
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.hosts[spec.ID], s.at = h, nil
		s.mu.Unlock()
	}
	return s.QuietMachines.Start(ctx, spec)
}

// boot does what cloud-init does at the first boot.
func (s *site) boot(ctx context.Context, id string) (*hosts.Host, error) {
	described, err := s.client.EC2.DescribeInstances(ctx, &ec2.DescribeInstancesInput{InstanceIds: []string{id}})
	if err != nil {
		return nil, err
	}
	data, err := s.client.EC2.DescribeInstanceAttribute(ctx, &ec2.DescribeInstanceAttributeInput{InstanceId: &id, Attribute: types.InstanceAttributeNameUserData})
	if err != nil {
		return nil, err
	}
	text, err := base64.StdEncoding.DecodeString(*data.UserData.Value)
	if err != nil {
		return nil, err
	}
	var config struct {
		Hostname string            `json:"hostname"`
		Keys     map[string]string `json:"ssh_keys"`
		Users    []struct {
			Name string   `json:"name"`
			Keys []string `json:"ssh_authorized_keys"`
		} `json:"users"`
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		return nil, err
	}
	if len(config.Users) != 1 {
		return nil, errors.New("the user data do not have one user")
	}
	address, err := netip.ParseAddr(*described.Reservations[0].Instances[0].PrivateIpAddress)
	if err != nil {
		return nil, fmt.Errorf("instance %s: %w", id, err)
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
