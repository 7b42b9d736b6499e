package orchestration

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
)

func TestParseParameters_Defaults(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"targets": {"include": [{"target": "all"}]}}`: `{"targets":{"include":[{"target":"all"}]},` +
			`"strategy":{"type":"parallel","schedule":"immediate","parallel":{"workers":1}}}`,
		`{"targets": {"include": [{"planName": "azure"}], "exclude": [{"region": "^eu"}]}, "dryRun": true, "notification": true,
		  "strategy": {"type": "parallel", "schedule": "now", "maintenanceWindow": true, "parallel": {"workers": 10}}}`: `{` +
			`"targets":{"include":[{"planName":"azure"}],"exclude":[{"region":"^eu"}]},` +
			`"strategy":{"type":"parallel","schedule":"immediate","maintenanceWindow":true,"parallel":{"workers":10}},"dryRun":true,"notification":true}`,
		`{"targets": {"include": [{"target": "all"}]}, "strategy": {"schedule": "2026-11-21T23:00:00+01:00"}}`: `{` +
			`"targets":{"include":[{"target":"all"}]},"strategy":{"type":"parallel","schedule":"2026-11-21T22:00:00Z","parallel":{"workers":1}}}`,
	} {
		p, err := ParseParameters(event.UpgradeKyma, []byte(body))
		if err != nil {
			t.Errorf("%s: %v", body, err)
			continue
		}
		got, err := json.Marshal(p)
		require.NoError(t, err)
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("parameters (-want +got):\n%s", diff)
		}
	}
}

func TestParseParameters_Invalid_NamesField(t *testing.T) {
	t.Parallel()
	const all = `"targets": {"include": [{"target": "all"}]}`
	for name, c := range map[string]struct {
		body, want string
		kind       event.OperationType
	}{
		"empty":                 {``, "body: is empty", ""},
		"no JSON":               {`{`, "body: ", ""},
		"a list":                {`[]`, "body: ", ""},
		"two":                   {`{` + all + `} {}`, "body: unexpected data after", ""},
		"unknown field":         {`{` + all + `, "strateggy": {}}`, `unknown field "strateggy"`, ""},
		"wrong type":            {`{` + all + `, "strategy": {"parallel": {"workers": "1"}}}`, "strategy.parallel.workers: is a string, must be a whole number", ""},
		"fraction":              {`{` + all + `, "strategy": {"parallel": {"workers": 1.5}}}`, "strategy.parallel.workers: is a number 1.5, must be a whole number", ""},
		"no targets":            {`{}`, "targets.include: must name", ""},
		"empty targets":         {`{"targets": {"include": [], "exclude": [{"target": "all"}]}}`, "targets.include: must name", ""},
		"no condition":          {`{"targets": {"include": [{"target": "all"}, {}]}}`, "targets.include[1]: has no condition", ""},
		"unknown condition":     {`{"targets": {"include": [{"plan": "azure"}]}}`, `unknown field "plan"`, ""},
		"target not all":        {`{"targets": {"include": [{"target": "some"}]}}`, `targets.include[0].target: "some"`, ""},
		"bad account":           {`{"targets": {"include": [{"globalAccount": "("}]}}`, "targets.include[0].globalAccount: is not a regular expression", ""},
		"bad subaccount":        {`{"targets": {"include": [{"subAccount": "["}]}}`, "targets.include[0].subAccount: is not a regular", ""},
		"bad region":            {`{"targets": {"include": [{"target":"all"}], "exclude": [{"region": "*"}]}}`, "targets.exclude[0].region: is not a regular", ""},
		"exclude all":           {`{"targets": {"include": [{"target":"all"}], "exclude": [{"target": "all"}]}}`, "targets.exclude[0].target: ", ""},
		"long condition":        {`{"targets": {"include": [{"shoot": "` + strings.Repeat("x", 501) + `"}]}}`, "targets.include[0].shoot: is 501 bytes", ""},
		"strategy":              {`{` + all + `, "strategy": {"type": "serial"}}`, `strategy.type: "serial"`, ""},
		"deprecated schedule":   {`{` + all + `, "strategy": {"schedule": "maintenanceWindow"}}`, "strategy.schedule: \"maintenanceWindow\" is no longer a schedule", ""},
		"schedule":              {`{` + all + `, "strategy": {"schedule": "tomorrow"}}`, `strategy.schedule: "tomorrow"`, ""},
		"schedule, no zone":     {`{` + all + `, "strategy": {"schedule": "2026-11-21T22:00:00"}}`, "strategy.schedule: ", ""},
		"negative workers":      {`{` + all + `, "strategy": {"parallel": {"workers": -1}}}`, "strategy.parallel.workers: -1: must be from 1 to 1000", ""},
		"too many workers":      {`{` + all + `, "strategy": {"parallel": {"workers": 1001}}}`, "strategy.parallel.workers: 1001", ""},
		"kyma version":          {`{` + all + `, "kyma": {"version": "latest"}}`, `kyma.version: "latest"`, ""},
		"kubernetes for kyma":   {`{` + all + `, "kubernetes": {"kubernetesVersion": "1.31.4"}}`, "kubernetes: is allowed only for POST /upgrade/cluster", ""},
		"kyma for kubernetes":   {`{` + all + `, "kyma": {"version": "2.20.1"}}`, "kyma: is allowed only for POST /upgrade/kyma", event.UpgradeCluster},
		"kubernetes version":    {`{` + all + `, "kubernetes": {"kubernetesVersion": "v1"}}`, `kubernetes.kubernetesVersion: "v1"`, event.UpgradeCluster},
		"machine image":         {`{` + all + `, "kubernetes": {"machineImage": "a b"}}`, `kubernetes.machineImage: "a b"`, event.UpgradeCluster},
		"machine image version": {`{` + all + `, "kubernetes": {"machineImageVersion": "/"}}`, `kubernetes.machineImageVersion: "/"`, event.UpgradeCluster},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kind := event.UpgradeKyma
			if c.kind != "" {
				kind = c.kind
			}
			if _, err := ParseParameters(kind, []byte(c.body)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

func TestParseParameters_Versions(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"2.20.1", "2.20.1-rc2", "v2.0.0", "PR-1234", "main-0123abcd", "release-2.20-0123abcd", ""} {
		if _, err := ParseParameters(event.UpgradeKyma, []byte(`{"targets":{"include":[{"target":"all"}]},"kyma":{"version":"`+version+`"}}`)); err != nil {
			t.Error(err)
		}
	}
	const cluster = `{"targets":{"include":[{"target":"all"}]},"kubernetes":{"kubernetesVersion":"1.31.4","machineImage":"gardenlinux","machineImageVersion":"1592.4.0"}}`
	if _, err := ParseParameters(event.UpgradeCluster, []byte(cluster)); err != nil {
		t.Error(err)
	}
}

func FuzzParseParameters(f *testing.F) {
	f.Add(`{"targets": {"include": [{"planName": "azure"}], "exclude": [{"region": "^eu"}]}, "strategy": {"schedule": "2026-11-21T23:00:00+01:00"}}`)
	f.Add(`{"targets": {"include": [{"target": "all"}]}, "kyma": {"version": "2.20.1"}}`)
	f.Fuzz(func(t *testing.T, body string) {
		p, err := ParseParameters(event.UpgradeKyma, []byte(body))
		if err != nil {
			return
		}
		text, err := json.Marshal(p)
		require.NoError(t, err)
		again, err := ParseParameters(event.UpgradeKyma, text)
		require.NoErrorf(t, err, "%s is accepted, but its stored form is not: %s", body, text)
		if twice, _ := json.Marshal(again); string(twice) != string(text) {
			t.Errorf("%s becomes %s", text, twice)
		}
	})
}
