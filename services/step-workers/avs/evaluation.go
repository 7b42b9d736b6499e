package avs

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/kyma-project/keb/libs/worker"
)

// kind is the kind of an evaluation: internal, or external for the public address of an instance.
type kind string

const (
	internal kind = "int"
	external kind = "ext"
)

// former returns the member of the details with the id of an evaluation whose removal has begun.
func (k kind) former() string {
	if k == external {
		return "formerExternalId"
	}
	return "formerInternalId"
}

const (
	maxName        = 80
	maxDescription = 255
)

// name returns the name of the evaluation of an instance. All attempts use the same name, so an operator can identify duplicates.
func (k kind) name(op worker.Operation) string {
	return cut("K8S-"+code(op)+"-Kyma-"+string(k)+"-"+op.InstanceID+"-"+op.Runtime.Name, maxName)
}

// code returns the provider in evaluation names. It depends only on the plan: all plans but three count as Azure, with any
// provider (docs/contracts/avs.md#evaluation).
func code(op worker.Operation) string {
	switch op.Plan.Name {
	case "aws":
		return "AWS"
	case "gcp":
		return "GCP"
	case "openstack":
		return "CC"
	}
	return "AZR"
}

// definition returns the evaluation of kind k for op.
func (k kind) definition(cfg Config, op worker.Operation) evaluation {
	name, tester := k.name(op), k.tester(cfg)
	at := placeOf(k, cfg, op)
	e := evaluation{
		DefinitionType: "BASIC", Name: name, Service: cmp.Or(tester.Service, name), Description: describe(op),
		Interval: 60, Timeout: 30000, ContentCheck: "error", ContentCheckType: "NOT_CONTAINS", Threshold: "30000",
		Visibility: "PUBLIC", TesterAccessID: at.TesterAccessID, GroupID: at.GroupID, ParentID: at.ParentID, Tags: tester.Tags,
	}
	if k == external {
		e.URL = "https://healthz." + op.Runtime.ShootDomain + "/healthz/ready"
		e.CheckType = "HTTPSGET"
	}
	return e
}

func (k kind) tester(cfg Config) Tester {
	if k == external {
		return cfg.External
	}
	return cfg.Internal
}

// placeOf returns the place of the evaluation. Group and parent are the same for both kinds, but trial and free instances may have
// a separate place for the internal one.
func placeOf(k kind, cfg Config, op worker.Operation) Place {
	if k == internal && isSmallPlan(op) && cfg.Trial.complete() {
		return cfg.Trial
	}
	return Place{TesterAccessID: k.tester(cfg).TesterAccessID, GroupID: cfg.GroupID, ParentID: cfg.ParentID}
}

// isSmallPlan reports whether op's plan has no external evaluation.
func isSmallPlan(op worker.Operation) bool { return op.Plan.Name == "trial" || op.Plan.Name == "free" }

// describe returns a JSON document of at most 255 characters. It omits the customer's texts before the ids.
func describe(op worker.Operation) string {
	d := struct {
		InstanceName    string `json:"instanceName"`
		GlobalAccountID string `json:"globalAccountID"`
		SubAccountID    string `json:"subAccountID"`
		InstanceID      string `json:"instanceID"`
		ShootName       string `json:"shootName"`
	}{op.Runtime.Name, op.Context.GlobalAccountID, op.Context.SubaccountID, op.InstanceID, op.Runtime.ShootName}
	for _, shorten := range []*string{nil, &d.InstanceName, &d.GlobalAccountID, &d.SubAccountID, &d.ShootName} {
		if shorten != nil {
			*shorten = ""
		}
		if text, err := json.Marshal(d); err == nil && len(text) <= maxDescription {
			return string(text)
		}
	}
	return ""
}

// cut shortens a text to at most n bytes without splitting a character.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "")
}
