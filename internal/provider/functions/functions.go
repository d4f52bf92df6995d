// Package functions has the provider's functions. They compute from their arguments, and know neither the
// provider's configuration nor a resource.
package functions

import (
	"context"
	"net/netip"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/function"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/addressplan"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/version"
)

// All returns the provider's functions. They compute from their arguments alone: what must be known
// at plan time must be given to them as variables.
func All() []func() function.Function {
	out := make([]func() function.Function, len(allFunctions))
	for i, f := range allFunctions {
		out[i] = func() function.Function { return f }
	}
	return out
}

// pureFunction is a function of the provider.
type pureFunction struct {
	name       string
	definition function.Definition
	run        func(ctx context.Context, args function.ArgumentsData, result *function.ResultData) *function.FuncError
}

func (f pureFunction) Metadata(_ context.Context, _ function.MetadataRequest, resp *function.MetadataResponse) {
	resp.Name = f.name
}

func (f pureFunction) Definition(_ context.Context, _ function.DefinitionRequest, resp *function.DefinitionResponse) {
	resp.Definition = f.definition
}

func (f pureFunction) Run(ctx context.Context, req function.RunRequest, resp *function.RunResponse) {
	resp.Error = f.run(ctx, req.Arguments, &resp.Result)
}

var allFunctions = []pureFunction{machineAddress, podCIDR, workerAddresses, networkProblems, versionProblems, issuerDocuments}

var (
	subnetParameter = function.StringParameter{Name: "subnet", MarkdownDescription: "Network of the machines' subnet, such as `node_cidr` of `k8s_network`."}
	podsParameter   = function.StringParameter{Name: "pod_cidr", MarkdownDescription: "Network of the cluster's pods, `pod_cidr` of `k8s_control_plane`."}
	indexParameter  = function.Int64Parameter{Name: "index", MarkdownDescription: "Number of the machine within its role, from 0 on, such as `count.index`."}
)

var machineAddress = pureFunction{
	name: "machine_address",
	definition: function.Definition{
		Summary:             "Address of a machine in its subnet",
		MarkdownDescription: "Returns the private address of a machine, for `private_ip` of `k8s_machine`. In every subnet each role has a range of addresses of its own, so machines of different roles never get the same address.",
		Parameters: []function.Parameter{subnetParameter,
			function.StringParameter{Name: "role", MarkdownDescription: "`lb`, `controller`, `etcd` or `worker`."}, indexParameter},
		Return: function.StringReturn{},
	},
	run: func(ctx context.Context, args function.ArgumentsData, result *function.ResultData) *function.FuncError {
		var subnet, role string
		var index int64
		if err := args.Get(ctx, &subnet, &role, &index); err != nil {
			return err
		}
		prefix, err := prefixArgument(0, subnet)
		if err != nil {
			return err
		}
		if err := addressplan.CheckRole(role); err != nil {
			return function.NewArgumentFuncError(1, err.Error())
		}
		a, failed := addressplan.Machine(prefix, role, int(index))
		if failed != nil {
			return function.NewArgumentFuncError(2, failed.Error())
		}
		return result.Set(ctx, a.String())
	},
}

var podCIDR = pureFunction{
	name: "pod_cidr",
	definition: function.Definition{
		Summary:             "Network of the pods on one worker",
		MarkdownDescription: "Returns the network of the pods on one worker, for `pod_cidr` of `k8s_machine`: the `/24` with this number in the network of all pods.",
		Parameters:          []function.Parameter{podsParameter, indexParameter},
		Return:              function.StringReturn{},
	},
	run: func(ctx context.Context, args function.ArgumentsData, result *function.ResultData) *function.FuncError {
		var pods string
		var index int64
		if err := args.Get(ctx, &pods, &index); err != nil {
			return err
		}
		prefix, err := prefixArgument(0, pods)
		if err != nil {
			return err
		}
		p, failed := addressplan.PodCIDR(prefix, int(index))
		if failed != nil {
			return function.NewArgumentFuncError(1, failed.Error())
		}
		return result.Set(ctx, p.String())
	},
}

// workerType is an element of what worker_addresses returns.
var workerType = types.ObjectType{AttrTypes: map[string]attr.Type{"private_ip": types.StringType, "pod_cidr": types.StringType}}

var workerAddresses = pureFunction{
	name: "worker_addresses",
	definition: function.Definition{
		Summary: "Addresses and pod networks of workers, by their names",
		MarkdownDescription: "Returns an object with `private_ip` and `pod_cidr` for each name, for `for_each` of `k8s_machine`. The position of a name in the list decides its addresses. To remove a " +
			"worker, put `null` or `\"\"` in its place: the other workers keep their addresses.",
		Parameters: []function.Parameter{
			function.ListParameter{Name: "subnets", ElementType: types.StringType, MarkdownDescription: "Networks of the machines' subnets, one for each availability zone, such as `node_cidrs` of `k8s_network`."},
			podsParameter,
			function.ListParameter{Name: "names", ElementType: types.StringType, MarkdownDescription: "Names of the workers; `null` or `\"\"` is a position without one."}},
		Return: function.MapReturn{ElementType: workerType},
	},
	run: func(ctx context.Context, args function.ArgumentsData, result *function.ResultData) *function.FuncError {
		var pods string
		var subnets []string
		var names []*string
		if err := args.Get(ctx, &subnets, &pods, &names); err != nil {
			return err
		}
		if len(subnets) == 0 {
			return function.NewArgumentFuncError(0, "no subnet is given")
		}
		var machines []netip.Prefix
		for _, text := range subnets {
			subnet, err := prefixArgument(0, text)
			if err != nil {
				return err
			}
			machines = append(machines, subnet)
		}
		podNetwork, err := prefixArgument(1, pods)
		if err != nil {
			return err
		}
		type worker struct {
			PrivateIP string `tfsdk:"private_ip"`
			PodCIDR   string `tfsdk:"pod_cidr"`
		}
		out := map[string]worker{}
		for i, name := range names {
			if name == nil || *name == "" {
				continue
			}
			if _, twice := out[*name]; twice {
				return function.NewArgumentFuncError(2, "the name "+*name+" is there twice")
			}
			a, err := addressplan.Machine(machines[i%len(machines)], addressplan.Worker, i/len(machines))
			if err != nil {
				return function.NewArgumentFuncError(2, *name+": "+err.Error())
			}
			p, err := addressplan.PodCIDR(podNetwork, i)
			if err != nil {
				return function.NewArgumentFuncError(2, *name+": "+err.Error())
			}
			out[*name] = worker{a.String(), p.String()}
		}
		return result.Set(ctx, out)
	},
}

var networkProblems = pureFunction{
	name: "network_problems",
	definition: function.Definition{
		Summary: "What is wrong with an address plan",
		MarkdownDescription: "Returns a sentence for each pair of networks that overlap, and for each network that overlaps one that other programs use on machines. The list is empty if there is no " +
			"problem. Use it in conditions of `check`, `precondition` and `validation`.",
		Parameters: []function.Parameter{function.MapParameter{Name: "networks", ElementType: types.ListType{ElemType: types.StringType},
			MarkdownDescription: "Lists of networks in CIDR notation, by any names, such as `nodes`, `pods`, `services` and `office`. The names are in the sentences."}},
		Return: function.ListReturn{ElementType: types.StringType},
	},
	run: func(ctx context.Context, args function.ArgumentsData, result *function.ResultData) *function.FuncError {
		var texts map[string][]string
		if err := args.Get(ctx, &texts); err != nil {
			return err
		}
		networks := addressplan.Networks{}
		for name, list := range texts {
			for _, text := range list {
				p, err := addressplan.Parse(text)
				if err != nil {
					return function.NewArgumentFuncError(0, name+": "+err.Error())
				}
				networks[name] = append(networks[name], p)
			}
		}
		return result.Set(ctx, networks.Problems())
	},
}

var versionProblems = pureFunction{
	name: "version_problems",
	definition: function.Definition{
		Summary: "What is wrong with a set of releases",
		MarkdownDescription: "Returns a sentence for each release that this provider does not support, for workers that may not run with the control plane, and for an upgrade that cannot be made in one step. " +
			"These are the rules of the resources' plans, for conditions of variables. The list is empty if nothing is wrong.",
		Parameters: []function.Parameter{function.MapParameter{Name: "versions", ElementType: types.StringType,
			MarkdownDescription: "Releases such as `1.36.4`, with the keys `control_plane`, `workers`, `etcd`, `containerd`; and `control_plane_now` and `etcd_now`, which run before an upgrade. Each may " +
				"be left out or `null`."}},
		Return: function.ListReturn{ElementType: types.StringType},
	},
	run: func(ctx context.Context, args function.ArgumentsData, result *function.ResultData) *function.FuncError {
		var texts map[string]*string
		if err := args.Get(ctx, &texts); err != nil {
			return err
		}
		set := map[string]version.Version{}
		for name, text := range texts {
			if text == nil {
				continue
			}
			v, err := version.Parse(*text)
			if err != nil {
				return function.NewArgumentFuncError(0, name+": "+err.Error())
			}
			set[name] = v
		}
		problems, err := version.Problems(set)
		if err != nil {
			return function.NewArgumentFuncError(0, err.Error())
		}
		return result.Set(ctx, problems)
	},
}

// prefixArgument reads a network, an argument at a position.
func prefixArgument(position int64, text string) (netip.Prefix, *function.FuncError) {
	p, err := addressplan.Parse(text)
	if err != nil {
		return p, function.NewArgumentFuncError(position, err.Error())
	}
	return p, nil
}
