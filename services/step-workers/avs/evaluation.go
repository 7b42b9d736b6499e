package avs

import (
	"encoding/json"
	"strings"

	"github.com/kyma-project/keb/libs/worker"
)

// kind is what an evaluation watches: the inside of an instance or its public address.
type kind string

const (
	internal kind = "int"
	external kind = "ext"
)

const (
	maxName        = 80
	maxDescription = 255
)

// name is the name of the evaluation of an instance. It is the same in every attempt, so it is also how the evaluation
// of an attempt that died is found.
func (k kind) name(op worker.Operation) string {
	return cut("K8S-"+code(op)+"-Kyma-"+string(k)+"-"+op.InstanceID+"-"+op.Runtime.Name, maxName)
}

// code names the provider in evaluation names (facts/keb.md 5.1).
func code(op worker.Operation) string {
	switch op.Plan.Name {
	case "aws", "preview":
		return "AWS"
	case "gcp":
		return "GCP"
	case "openstack", "sap-converged-cloud":
		return "CC"
	}
	return "AZR"
}

// definition is the evaluation that k wants for op.
func (k kind) definition(cfg Config, op worker.Operation) evaluation {
	name := k.name(op)
	service := cfg.Service
	if service == "" {
		service = name
	}
	e := evaluation{
		DefinitionType: "BASIC", Name: name, Service: service, Description: describe(op),
		Interval: 60, Timeout: 30000, ContentCheck: "error", ContentCheckType: "NOT_CONTAINS", Threshold: "30000",
		Visibility: "PUBLIC", Tags: []tag{},
	}
	place := k.place(cfg, op)
	e.TesterAccessID, e.GroupID, e.ParentID = place.TesterAccessID, place.GroupID, place.ParentID
	if k == external {
		e.URL = "https://healthz." + op.Runtime.ShootDomain + "/healthz/ready"
		e.CheckType = "HTTPSGET"
	}
	return e
}

func (k kind) place(cfg Config, op worker.Operation) Place {
	switch {
	case k == external:
		return cfg.External
	case small(op) && cfg.Trial.complete():
		return cfg.Trial
	}
	return cfg.Internal
}

// small reports whether op's plan is one that is not watched from outside.
func small(op worker.Operation) bool { return op.Plan.Name == "trial" || op.Plan.Name == "free" }

// describe is a JSON document of at most 255 characters: the customer's own words are cut before the ids are.
func describe(op worker.Operation) string {
	d := struct {
		InstanceName    string `json:"instanceName,omitempty"`
		GlobalAccountID string `json:"globalAccountID,omitempty"`
		SubAccountID    string `json:"subAccountID,omitempty"`
		InstanceID      string `json:"instanceID"`
		ShootName       string `json:"shootName,omitempty"`
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

// cut shortens a text to n bytes without splitting a character.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "")
}
