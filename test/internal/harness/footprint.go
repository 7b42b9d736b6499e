package harness

import (
	"maps"
	"slices"
)

// Footprint is what a runtime leaves in the external systems, by "system/kind".
type Footprint map[string]int

// Complete is the footprint of a provisioned runtime of plan azure (docs/contracts/processes.md#provisioning): two AvS evaluations, an EDP
// tenant with its metadata, a cluster with all that knows it, its Kyma with the Secret of its kubeconfig, its sap-btp-manager Secret, and a claimed
// account of the hyperscaler.
func Complete() Footprint {
	return Footprint{
		"avs/evaluation": 2, "edp/dataTenant": 1, "edp/metadata": 4, "provisioner/runtime": 1, "director/runtime": 1,
		"reconciler/cluster": 1, "control-plane/Kyma": 1, "control-plane/Secret": 1, "gardener/Shoot": 1, "gardener/SecretBinding": 1,
		"runtimes/cluster": 1, "runtimes/Secret": 1,
	}
}

// WithoutAccount leaves out the account of the hyperscaler. After a deprovisioning it stays claimed and dirty until it is cleaned,
// which may be soon.
func (f Footprint) WithoutAccount() Footprint {
	f = maps.Clone(f)
	delete(f, claimed)
	return f
}

// claimed are objects that are not made for a runtime: they are there, and a runtime claims one.
const claimed = "gardener/SecretBinding"

// Created is what the landscape makes for n such footprints.
func (f Footprint) Created(n int) map[string]int {
	created := map[string]int{}
	for key, count := range f {
		if key != claimed {
			created[key] = n * count
		}
	}
	return created
}

// Footprints are those of many orders, in the same order. Kinds of which there is nothing are left out.
func (s *System) Footprints(orders []*Order) []Footprint {
	s.t.Helper()
	all := map[string][]Object{}
	for key := range Complete() {
		system, kind := split(key)
		all[key] = s.Objects(system, kind, "")
	}
	footprints := make([]Footprint, len(orders))
	for i, o := range orders {
		marks := []string{o.InstanceID, o.Subaccount, o.GlobalAccount}
		for _, runtime := range all["director/runtime"] {
			if runtime.Has(o.InstanceID) {
				marks = append(marks, runtime.ID)
			}
		}
		footprints[i] = Footprint{}
		for key, objects := range all {
			for _, object := range objects {
				if hasAny(object, marks) {
					footprints[i][key]++
				}
			}
		}
	}
	return footprints
}

func hasAny(o Object, marks []string) bool {
	return slices.ContainsFunc(marks, o.Has)
}

func split(key string) (system, kind string) {
	for i := range key {
		if key[i] == '/' {
			return key[:i], key[i+1:]
		}
	}
	return key, ""
}
