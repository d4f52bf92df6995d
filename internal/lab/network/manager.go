package network

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"sync"
)

// Manager manages one slice's network. It is safe for concurrent use.
type Manager struct {
	slice Slice

	mu        sync.Mutex
	config    Config                 // as applied last
	rulesets  map[string]string      // by VPC, and by interface of a NAT gateway or a load balancer, as loaded last
	listeners map[string][]io.Closer // by VPC
}

// Open connects the host with a slice's internet namespace, which it creates if necessary. It
// adopts the namespaces of an earlier process unchanged; the next [Manager.Apply] compares them
// with its configuration. It needs root and nft(8).
func Open(ctx context.Context, slice Slice) (*Manager, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("open network %s: %w", slice.Prefix, err)
	}
	if _, err := nftPath(); err != nil {
		return nil, fmt.Errorf("open network %s: %w", slice.Prefix, err)
	}
	if err := slice.connectHost(ctx); err != nil {
		return nil, fmt.Errorf("open network %s: %w", slice.Prefix, err)
	}
	return &Manager{slice: slice, rulesets: map[string]string{}, listeners: map[string][]io.Closer{}}, nil
}

// Slice returns the slice that the manager was opened with.
func (m *Manager) Slice() Slice { return m.slice }

// InterfaceNetns returns the path of the network namespace behind an interface, for nspawn and the
// like. It exists once a configuration with the interface has been applied.
func (m *Manager) InterfaceNetns(id string) string { return netnsPath(m.slice.namespace(id)) }

// Apply brings the network to the state of the configuration. It changes only what differs, and
// does not disturb flows that a change does not concern. An invalid configuration is refused before
// anything is changed. After any other error the network is between the old and the new state, and
// the next Apply continues.
func (m *Manager) Apply(ctx context.Context, cfg Config) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := cfg.validate(m.slice); err != nil {
		return fmt.Errorf("apply network configuration: %w", err)
	}
	if err := m.apply(ctx, cfg); err != nil {
		return fmt.Errorf("apply network configuration: %w", err)
	}
	m.config = cfg
	return nil
}

func (m *Manager) apply(ctx context.Context, cfg Config) error {
	var errs []error
	for _, vpc := range cfg.VPCs {
		if err := ctx.Err(); err != nil {
			return errors.Join(append(errs, err)...)
		}
		if err := m.syncRouter(ctx, vpc); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", vpc.ID, err))
		}
	}
	if err := m.removeOthers(cfg); err != nil {
		errs = append(errs, err)
	}
	if err := m.syncInternet(cfg); err != nil {
		errs = append(errs, fmt.Errorf("internet: %w", err))
	}
	return errors.Join(errs...)
}

// syncRouter brings one VPC's router up to date. It loads the ruleset first, so that nothing new is
// reachable without it. The links that the ruleset names need not exist yet.
func (m *Manager) syncRouter(ctx context.Context, vpc VPC) error {
	plan := planRouter(vpc)
	router := m.slice.namespace(vpc.ID)
	created, err := ensureNamespace(router, forwardingSysctls...)
	if err != nil {
		return err
	}
	if created {
		m.forget(vpc.ID)
	}
	text := renderRuleset(vpc)
	reloaded := m.rulesets[vpc.ID] != text
	if reloaded {
		if err := loadRuleset(ctx, router, text); err != nil {
			return err
		}
		if err := within(router, func() error { return setSysctls(groupSysctls) }); err != nil {
			return err
		}
	}
	if err := syncUplink(ctx, router, m.slice.namespace(internetID), vpc); err != nil {
		return err
	}
	handle, _, closeRouter, err := open(router)
	if err != nil {
		return err
	}
	defer closeRouter()
	if err := syncLoopback(handle, plan.Addresses); err != nil {
		return err
	}
	removed, err := m.syncLinks(ctx, router, plan.Links)
	if err != nil {
		return err
	}
	for _, l := range plan.Links {
		if l.Interface.forwards() {
			if err := m.syncForwarder(ctx, l); err != nil {
				return fmt.Errorf("forwarding behind %s: %w", l.Interface.ID, err)
			}
		}
	}
	if err := syncRules(handle, plan.Rules); err != nil {
		return err
	}
	if err := syncRoutes(handle, plan.Routes, true); err != nil {
		return err
	}
	if reloaded || len(removed) > 0 {
		if err := cutStaleFlows(handle, vpc, removed); err != nil {
			return err
		}
	}
	m.rulesets[vpc.ID] = text
	return nil
}

// syncInternet updates the internet namespace's routes to the public addresses in use.
func (m *Manager) syncInternet(cfg Config) error {
	handle, _, closeInternet, err := open(m.slice.namespace(internetID))
	if err != nil {
		return err
	}
	defer closeInternet()
	return syncRoutes(handle, planInternet(m.slice, cfg), true)
}

// removeOthers removes the namespaces of routers and interfaces that are not in the configuration.
func (m *Manager) removeOthers(cfg Config) error {
	wanted := []string{m.slice.namespace(internetID)}
	for _, vpc := range cfg.VPCs {
		wanted = append(wanted, m.slice.namespace(vpc.ID))
		for _, i := range vpc.Interfaces {
			wanted = append(wanted, m.slice.namespace(i.ID))
		}
	}
	existing, err := m.slice.namespaces()
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range existing {
		if slices.Contains(wanted, name) {
			continue
		}
		id := strings.TrimPrefix(name, m.slice.namespace(""))
		m.forget(id)
		errs = append(errs, removeNamespace(name))
	}
	return errors.Join(errs...)
}

// ResetInterface replaces the namespace behind an interface by a new one, as a reboot clears the
// addresses, routes and rules that a machine has set. Processes in the old namespace must have
// ended. The interface keeps its addresses, and the router its connection tracking entries.
func (m *Manager) ResetInterface(ctx context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, vpc := range m.config.VPCs {
		if _, ok := vpc.iface(id); !ok {
			continue
		}
		if err := m.resetInterface(ctx, vpc, id); err != nil {
			return fmt.Errorf("reset interface %s: %w", id, err)
		}
		return nil
	}
	return fmt.Errorf("reset interface %s: not applied", id)
}

func (m *Manager) resetInterface(ctx context.Context, vpc VPC, id string) error {
	handle, _, closeRouter, err := open(m.slice.namespace(vpc.ID))
	if err != nil {
		return err
	}
	defer closeRouter()
	if found, err := handle.LinkByName(shortName(id)); err == nil {
		if err := handle.LinkDel(found); err != nil {
			return fmt.Errorf("delete link: %w", err)
		}
	}
	if err := deleteNamespace(m.slice.namespace(id)); err != nil {
		return err
	}
	return m.syncRouter(ctx, vpc)
}

// ListenTCP opens a TCP listener inside a VPC's router, such as "169.254.169.254:80". It is closed
// when the VPC is removed, unless the caller closes it before. Security groups do not restrict
// packets for the VPC's services. The remote address of a connection is the interface's private
// address.
func (m *Manager) ListenTCP(ctx context.Context, vpcID, addr string) (net.Listener, error) {
	var listener net.Listener
	err := m.listen(vpcID, func() (io.Closer, error) {
		config := net.ListenConfig{}
		config.SetMultipathTCP(false) // callers set socket options, such as the TTL, that multipath TCP lacks
		var err error
		listener, err = config.Listen(ctx, "tcp4", addr)
		return listener, err
	})
	if err != nil {
		return nil, fmt.Errorf("listen on tcp %s in %s: %w", addr, vpcID, err)
	}
	return listener, nil
}

// ListenUDP is like [Manager.ListenTCP] for UDP.
func (m *Manager) ListenUDP(ctx context.Context, vpcID, addr string) (net.PacketConn, error) {
	var conn net.PacketConn
	err := m.listen(vpcID, func() (io.Closer, error) {
		var err error
		conn, err = (&net.ListenConfig{}).ListenPacket(ctx, "udp4", addr)
		return conn, err
	})
	if err != nil {
		return nil, fmt.Errorf("listen on udp %s in %s: %w", addr, vpcID, err)
	}
	return conn, nil
}

// ListenInternet opens a TCP listener in the internet, such as on port 80 of one of
// [Slice.Servers]. The remote address of a connection from an instance is the instance's public
// address. It is closed with the manager, unless the caller closes it before.
func (m *Manager) ListenInternet(ctx context.Context, addr netip.AddrPort) (net.Listener, error) {
	return m.ListenTCP(ctx, internetID, addr.String())
}

// InterfaceAt returns the identifier of the interface behind the link with an index of a VPC's
// router. It identifies the sender of a packet even if the packet forges its source.
func (m *Manager) InterfaceAt(vpcID string, index int) (string, error) {
	handle, _, closeRouter, err := open(m.slice.namespace(vpcID))
	if err != nil {
		return "", err
	}
	defer closeRouter()
	found, err := handle.LinkByIndex(index)
	if err != nil {
		return "", fmt.Errorf("find link %d of %s: %w", index, vpcID, err)
	}
	id, _, _ := strings.Cut(found.Attrs().Alias, " ")
	return id, nil
}

func (m *Manager) listen(vpcID string, listen func() (io.Closer, error)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return within(m.slice.namespace(vpcID), func() error {
		socket, err := listen()
		if err != nil {
			return err
		}
		m.listeners[vpcID] = append(m.listeners[vpcID], socket)
		return nil
	})
}

// forget closes the listeners of a removed router, and forgets its ruleset.
func (m *Manager) forget(vpcID string) {
	m.closeListeners(vpcID)
	delete(m.rulesets, vpcID)
}

func (m *Manager) closeListeners(vpcID string) {
	for _, socket := range m.listeners[vpcID] {
		_ = socket.Close() // the caller may have closed it
	}
	delete(m.listeners, vpcID)
}

// Close closes the listeners. The network stays, for a later Open.
func (m *Manager) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id := range m.listeners {
		m.closeListeners(id)
	}
}

// Down removes everything of the slice from the host. See [Down].
func (m *Manager) Down(ctx context.Context) error {
	m.Close()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.config, m.rulesets = Config{}, map[string]string{}
	return Down(ctx, m.slice)
}

// loadRuleset replaces a namespace's rules in one transaction.
func loadRuleset(ctx context.Context, namespace, text string) error {
	nft, err := nftPath()
	if err != nil {
		return err
	}
	return within(namespace, func() error {
		cmd := exec.CommandContext(ctx, nft, "-f", "-")
		cmd.Stdin = strings.NewReader(text)
		if output, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("load ruleset: %w: %s", err, strings.TrimSpace(string(output)))
		}
		return nil
	})
}

// nftPath finds nft(8), also if PATH lacks /usr/sbin.
func nftPath() (string, error) {
	path, err := exec.LookPath("nft")
	if err != nil {
		path, err = exec.LookPath("/usr/sbin/nft")
	}
	if err != nil {
		return "", fmt.Errorf("find nft (Debian package nftables): %w", err)
	}
	return path, nil
}
