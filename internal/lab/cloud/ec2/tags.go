package ec2

import (
	"maps"
	"slices"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// maxTags is how many tags a resource may have.
const maxTags = 50

type tag struct {
	Key   string `xml:"key"`
	Value string `xml:"value"`
}

type tagSpecification struct {
	ResourceType string
	Tags         []tag `query:"Tag"`
}

var tagActions = map[string]action{
	"CreateTags":   writes(createTags),
	"DeleteTags":   writes(deleteTags),
	"DescribeTags": reads(describeTags),
}

func (t *tx) tags(id string) []tag {
	var out []tag
	for _, k := range slices.Sorted(maps.Keys(t.st.Tags[id])) {
		out = append(out, tag{k, t.st.Tags[id][k]})
	}
	return out
}

func (t *tx) setTags(id string, tags []tag) error {
	for _, g := range tags {
		switch {
		case g.Key == "":
			return invalidValue("Tag key can't be empty.")
		case len(g.Key) > 128:
			return invalidValue("Tag key exceeds the maximum length of 128 characters")
		case len(g.Value) > 256:
			return invalidValue("Tag value exceeds the maximum length of 256 characters")
		case strings.HasPrefix(strings.ToLower(g.Key), "aws:"):
			return invalidValue("Tag keys starting with 'aws:' are reserved for internal use")
		}
		if t.st.Tags[id] == nil {
			t.st.Tags[id] = map[string]string{}
		}
		t.st.Tags[id][g.Key] = g.Value
	}
	if len(t.st.Tags[id]) > maxTags {
		return wire.Refuse("TagLimitExceeded", "The maximum number of tags for this resource (%d) has been reached: %s", maxTags, id)
	}
	return nil
}

// applySpecs tags a new resource of kind k according to the request's TagSpecifications.
func (t *tx) applySpecs(specs []tagSpecification, k kind, id string) error {
	for _, s := range specs {
		if s.ResourceType == k.typ {
			if err := t.setTags(id, s.Tags); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkSpecs refuses specifications for types that the action does not create.
func checkSpecs(specs []tagSpecification, allowed ...kind) error {
	seen := map[string]bool{}
	for _, s := range specs {
		if seen[s.ResourceType] {
			return invalidValue("The same resource type may not be specified more than once in tag specifications")
		}
		seen[s.ResourceType] = true
		if !slices.ContainsFunc(allowed, func(k kind) bool { return k.typ == s.ResourceType }) {
			return invalidValue("'%s' is not a valid taggable resource type for this operation.", s.ResourceType)
		}
		keys := map[string]bool{}
		for _, g := range s.Tags {
			if keys[g.Key] {
				return invalidValue("Duplicate tag key '%s' specified.", g.Key)
			}
			keys[g.Key] = true
		}
	}
	return nil
}

type tagsRequest struct {
	request
	ResourceIds []string     `query:"ResourceId"`
	Tags        []deletedTag `query:"Tag"`
}

// deletedTag distinguishes no value from an empty one.
type deletedTag struct {
	Key   string
	Value *string
}

// taggable refuses ids of resources that do not exist.
func (t *tx) taggable(ids []string) error {
	if len(ids) == 0 {
		return missing("resourceIdSet")
	}
	for _, id := range ids {
		k, ok := kindOf(id)
		if !ok {
			return wire.Refuse("InvalidID", "The ID '%s' is not valid", id)
		}
		if err := k.check("resourceId", id); err != nil {
			return err
		}
		if !t.exists(id) || t.c.faults.Hidden(id, t.now) {
			return k.notFoundError(id)
		}
	}
	return nil
}

func (t *tx) exists(id string) bool {
	k, _ := kindOf(id)
	var ok bool
	switch k.prefix {
	case kindVPC.prefix:
		_, ok = t.st.VPCs[id]
	case kindSubnet.prefix:
		_, ok = t.st.Subnets[id]
	case kindGateway.prefix:
		_, ok = t.st.Gateways[id]
	case kindNATGateway.prefix:
		_, ok = t.natGateways()[id]
	case kindConnectEndpoint.prefix:
		_, ok = t.connectEndpoints()[id]
	case kindRouteTable.prefix:
		_, ok = t.st.RouteTables[id]
	case kindGroup.prefix:
		_, ok = t.st.Groups[id]
	case kindRule.prefix:
		_, ok = t.st.Rules[id]
	case kindInstance.prefix:
		_, ok = t.st.Instances[id]
	case kindInterface.prefix:
		_, ok = t.st.Interfaces[id]
	case kindVolume.prefix:
		_, ok = t.st.Volumes[id]
	case kindImage.prefix:
		ok = t.st.Images[id] != nil && t.st.Images[id].Deregistered.IsZero()
	case kindSnapshot.prefix:
		_, ok = t.st.Snapshots[id]
	case kindAddress.prefix:
		_, ok = t.st.Addresses[id]
	case kindKeyPair.prefix:
		_, ok = t.st.KeyPairs[id]
	case kindDHCPOptions.prefix:
		ok = id == t.c.defaultDHCPOptions().ID
	case kindNetworkACL.prefix:
		_, ok = t.networkACLs()[id]
	}
	return ok
}

func createTags(t *tx, in *tagsRequest) (any, error) {
	if err := t.taggable(in.ResourceIds); err != nil {
		return nil, err
	}
	if len(in.Tags) == 0 {
		return nil, missing("tagSet")
	}
	for _, id := range in.ResourceIds {
		var tags []tag
		for _, g := range in.Tags {
			v := ""
			if g.Value != nil {
				v = *g.Value
			}
			tags = append(tags, tag{g.Key, v})
		}
		if err := t.setTags(id, tags); err != nil {
			return nil, err
		}
		if err := t.checkMetadataTags(t.st.Instances[id]); err != nil {
			return nil, err
		}
	}
	return done{true}, nil
}

// deleteTags deletes the named tags, if a value is given only with that value. Without names it
// deletes all tags.
func deleteTags(t *tx, in *tagsRequest) (any, error) {
	if err := t.taggable(in.ResourceIds); err != nil {
		return nil, err
	}
	for _, id := range in.ResourceIds {
		if len(in.Tags) == 0 {
			delete(t.st.Tags, id)
		}
		for _, g := range in.Tags {
			if v, ok := t.st.Tags[id][g.Key]; ok && (g.Value == nil || *g.Value == v) {
				delete(t.st.Tags[id], g.Key)
			}
		}
	}
	return done{true}, nil
}

type tagDescription struct {
	ResourceID   string `xml:"resourceId"`
	ResourceType string `xml:"resourceType"`
	Key          string `xml:"key"`
	Value        string `xml:"value"`
}

type describeTagsResponse struct {
	Tags      []tagDescription `xml:"tagSet>item"`
	NextToken string           `xml:"nextToken,omitempty"`
}

func describeTags(t *tx, in *describeRequest) (any, error) {
	known := fields[tagDescription]{
		"key":           func(_ *tx, d *tagDescription) []string { return one(d.Key) },
		"value":         func(_ *tx, d *tagDescription) []string { return []string{d.Value} },
		"resource-id":   func(_ *tx, d *tagDescription) []string { return one(d.ResourceID) },
		"resource-type": func(_ *tx, d *tagDescription) []string { return one(d.ResourceType) },
	}
	all := map[string]*tagDescription{}
	for id, tags := range t.st.Tags {
		if k, ok := kindOf(id); ok {
			for key, value := range tags {
				all[id+"/"+key] = &tagDescription{id, k.typ, key, value}
			}
		}
	}
	if err := checkFilters(in.Filters, known); err != nil {
		return nil, err
	}
	var keys []string
	for _, k := range slices.Sorted(maps.Keys(all)) {
		if t.matches(all[k].ResourceID, in.Filters, func(name string) []string { return known[name](t, all[k]) }) {
			keys = append(keys, k)
		}
	}
	keys, next, err := t.cut(keys, in.MaxResults, in.NextToken, 5, false)
	if err != nil {
		return nil, err
	}
	out := describeTagsResponse{NextToken: next}
	for _, k := range keys {
		out.Tags = append(out.Tags, *all[k])
	}
	return out, nil
}
