package metadata

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// versions are the versions that EC2 serves. Here all have the same data.
var versions = []string{
	"1.0", "2007-01-19", "2007-03-01", "2007-08-29", "2007-10-10", "2007-12-15", "2008-02-01", "2008-09-01", "2009-04-04",
	"2011-01-01", "2011-05-01", "2012-01-12", "2014-02-25", "2014-11-05", "2015-10-20", "2016-04-19", "2016-06-30", "2016-09-02",
	"2018-03-28", "2018-08-17", "2018-09-24", "2019-10-01", "2020-10-27", "2021-01-03", "2021-03-23", "2021-07-15", "2022-09-24",
	"2024-04-11", "latest",
}

// leaves returns everything below a version, by path (EC2 user guide, "Instance metadata
// categories"). identity is what is below iamPath.
func (i Instance) leaves(identity map[string]string) map[string]string {
	out := map[string]string{
		"meta-data/ami-id":                         i.ImageID,
		"meta-data/ami-launch-index":               strconv.Itoa(i.LaunchIndex),
		"meta-data/ami-manifest-path":              "(unknown)",
		"meta-data/block-device-mapping/ami":       "/dev/xvda",
		"meta-data/block-device-mapping/root":      "/dev/xvda",
		"meta-data/hostname":                       i.PrivateName,
		"meta-data/instance-action":                "none",
		"meta-data/instance-id":                    i.ID,
		"meta-data/instance-life-cycle":            "on-demand",
		"meta-data/instance-type":                  i.Type,
		"meta-data/local-hostname":                 i.PrivateName,
		"meta-data/local-ipv4":                     i.PrivateIP.String(),
		"meta-data/mac":                            i.MAC,
		"meta-data/placement/availability-zone":    i.Zone,
		"meta-data/placement/availability-zone-id": i.ZoneID,
		"meta-data/placement/region":               i.Region,
		"meta-data/profile":                        "default-hvm",
		"meta-data/reservation-id":                 i.ReservationID,
		"meta-data/security-groups":                strings.Join(i.Groups, "\n"),
		"meta-data/services/domain":                i.Domain,
		"meta-data/services/partition":             i.Partition,
		"dynamic/instance-identity/document":       i.document(),
	}
	maps.Copy(out, identity)
	if i.Spot {
		out["meta-data/instance-life-cycle"] = "spot"
	}
	if !i.Ends.IsZero() {
		out["meta-data/spot/instance-action"] = `{"action":"terminate","time":"` + stamp(i.Ends) + `"}`
		out["meta-data/spot/termination-time"] = stamp(i.Ends)
	}
	if !i.Recommended.IsZero() {
		out["meta-data/events/recommendations/rebalance"] = `{"noticeTime":"` + stamp(i.Recommended) + `"}`
	}
	out["meta-data/events/maintenance/scheduled"] = document(i.events(true))
	out["meta-data/events/maintenance/history"] = document(i.events(false))
	nic := "meta-data/network/interfaces/macs/" + i.MAC + "/"
	for name, value := range map[string]string{
		"device-number": "0", "interface-id": i.InterfaceID, "local-hostname": i.PrivateName, "local-ipv4s": i.PrivateIP.String(),
		"mac": i.MAC, "owner-id": i.AccountID, "security-group-ids": strings.Join(i.GroupIDs, "\n"),
		"security-groups": strings.Join(i.Groups, "\n"), "subnet-id": i.SubnetID, "subnet-ipv4-cidr-block": i.SubnetCIDR.String(),
		"vpc-id": i.VPCID, "vpc-ipv4-cidr-block": i.VPCCIDR.String(), "vpc-ipv4-cidr-blocks": i.VPCCIDR.String(),
	} {
		out[nic+name] = value
	}
	if i.PublicIP.IsValid() {
		out["meta-data/public-ipv4"] = i.PublicIP.String()
		out[nic+"public-ipv4s"] = i.PublicIP.String()
		out[nic+"ipv4-associations/"+i.PublicIP.String()] = i.PrivateIP.String()
		if i.PublicName != "" {
			out["meta-data/public-hostname"] = i.PublicName
			out[nic+"public-hostname"] = i.PublicName
		}
	}
	if i.PublicKey != "" {
		out["meta-data/public-keys/0/openssh-key"] = i.PublicKey
	}
	if i.ShowTags {
		for k, v := range i.Tags {
			if !strings.ContainsAny(k, "/ ") { // EC2 refuses such keys while tags are in the metadata
				out["meta-data/tags/instance/"+k] = v
			}
		}
	}
	if len(i.UserData) > 0 {
		out["user-data"] = string(i.UserData)
	}
	return out
}

// events returns the events that are active, or those that are over.
func (i Instance) events(active bool) []map[string]any {
	out := []map[string]any{}
	for _, e := range i.Events {
		if (e.State == "active") == active {
			shown := map[string]any{"NotBefore": eventTime(e.NotBefore), "Code": e.Code, "Description": e.Description, "EventId": e.ID, "State": e.State}
			if !e.NotAfter.IsZero() {
				shown["NotAfter"] = eventTime(e.NotAfter)
			}
			out = append(out, shown)
		}
	}
	return out
}

func eventTime(t time.Time) string { return t.UTC().Format("2 Jan 2006 15:04:05 GMT") }

func (i Instance) document() string {
	doc := map[string]any{
		"accountId": i.AccountID, "architecture": "x86_64", "availabilityZone": i.Zone, "imageId": i.ImageID, "instanceId": i.ID,
		"instanceType": i.Type, "kernelId": nil, "pendingTime": i.Launched.UTC().Format(time.RFC3339), "privateIp": i.PrivateIP.String(),
		"ramdiskId": nil, "region": i.Region, "version": "2017-09-30", "billingProducts": nil, "marketplaceProductCodes": nil,
	}
	return document(doc)
}

// lookup answers a path below a version: a leaf's value, or the list of what is in a directory,
// directories ending in "/". identity is what is below iamPath.
func (i Instance) lookup(path string, identity map[string]string) (string, bool) {
	leaves := i.leaves(identity)
	path = strings.TrimSuffix(path, "/")
	if v, ok := leaves[path]; ok {
		return v, true
	}
	prefix := path + "/"
	if path == "" {
		prefix = ""
	}
	var names []string
	for leaf := range leaves {
		rest, ok := strings.CutPrefix(leaf, prefix)
		if !ok {
			continue
		}
		name, _, deeper := strings.Cut(rest, "/")
		switch {
		case path == "meta-data/public-keys":
			name = "0=" + i.KeyName // keys are listed by number and name
		case deeper && path != "":
			name += "/"
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, "\n"), len(names) > 0
}
