package functions

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/function"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/issuer"
)

var documentsType = map[string]attr.Type{"openid_configuration": types.StringType, "jwks": types.StringType}

var issuerDocuments = pureFunction{
	name: "issuer_documents",
	definition: function.Definition{
		Summary: "Documents in which an issuer of service accounts' tokens shows its keys",
		MarkdownDescription: "Returns an object with two documents in JSON, for an issuer that is published by other means than `bucket` of `k8s_workload_identity`: `openid_configuration` belongs at " +
			"`<issuer>/" + issuer.ConfigurationPath + "`, and `jwks` at `<issuer>/" + issuer.KeysPath + "`.",
		Parameters: []function.Parameter{
			function.StringParameter{Name: "issuer", MarkdownDescription: "URL of the issuer."},
			function.StringParameter{Name: "public_keys_pem", MarkdownDescription: "Public keys in PEM: `k8s_pki.<name>.ref.service_account_public_key_pem`."},
		},
		Return: function.ObjectReturn{AttributeTypes: documentsType},
	},
	run: func(ctx context.Context, args function.ArgumentsData, result *function.ResultData) *function.FuncError {
		var at, keys string
		if err := args.Get(ctx, &at, &keys); err != nil {
			return err
		}
		if err := issuer.Check(at); err != nil {
			return function.NewArgumentFuncError(0, err.Error())
		}
		d, err := issuer.Of(at, keys)
		if err != nil {
			return function.NewArgumentFuncError(1, err.Error())
		}
		return result.Set(ctx, types.ObjectValueMust(documentsType, map[string]attr.Value{
			"openid_configuration": types.StringValue(string(d.Configuration)), "jwks": types.StringValue(string(d.Keys)),
		}))
	},
}
