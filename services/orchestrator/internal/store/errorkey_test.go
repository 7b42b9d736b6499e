package store

import (
	"strings"
	"testing"

	"github.com/kyma-project/keb/libs/event"
)

func TestErrorPattern_PartsOfOneOperation_AreLeftOut(t *testing.T) {
	t.Parallel()
	op := &event.Operation{
		ID: "019aa7a0-5e0a-7c1c-9d43-0c5f0a4d3b11", InstanceID: "my-cluster", Runtime: event.Runtime{Name: "prod-demo", ShootName: "c-abcdefg", Region: "westeurope"},
	}
	for message, want := range map[string]string{
		"POST /namespaces/6f2fbf0a-1b1b-4b1b-8b1b-123456789012: status 503":                    "POST /namespaces/…: status 503",
		"instance my-cluster: shoot c-abcdefg of prod-demo is away":                            "instance …: shoot … of … is away",
		"EDP_Registration was retried for 5m0s without success: edp answered 500 after 3 s":    "EDP_Registration was retried for … without success: edp answered 500 after … s",
		`Get "http://avs.kcp:8080/api/v1/checks?id=42": dial tcp 10.0.0.7:8080: refused`:       `Get "http://…/api/v1/checks?id=…": dial tcp …: refused`,
		"the  cluster\n is not ready since 2026-11-21T08:00:00Z, 12, 13 and 14 of 15 nodes up": "the cluster is not ready since … and … of … nodes up",
		"quota: policy refused plan azure":                                                     "quota: policy refused plan azure",
		"":                                                                                     "",
	} {
		if got := ErrorPattern(message, op); got != want {
			t.Errorf("%q became %q, want %q", message, got, want)
		}
	}
	if got := ErrorPattern(strings.Repeat("word ", 100_000), nil); len(got) > 300 {
		t.Errorf("a long message becomes %d bytes", len(got))
	}
}

func TestErrorKey_DifferentErrors_HaveDifferentKeys(t *testing.T) {
	t.Parallel()
	base := event.Error{Component: "edp", Reason: "err_http", Message: "status 503 for 1"}
	same := base
	same.Message = "status 503 for 2"
	if key := errorKey(&base, nil); key != errorKey(&same, nil) || len(key) != ErrorKeyLength {
		t.Errorf("similar errors have the keys %q and %q", key, errorKey(&same, nil))
	}
	for _, other := range []event.Error{
		{Component: "avs", Reason: "err_http", Message: "status 503 for 1"},
		{Component: "edp", Reason: "err_x", Message: "status 503 for 1"},
		{Component: "edp", Reason: "err_http", Message: "status 500 for 1"},
		{Component: "edp", Reason: "err_http", Message: "gone"},
	} {
		if errorKey(&other, nil) == errorKey(&base, nil) {
			t.Errorf("%+v has the key of %+v", other, base)
		}
	}
	if key := errorKey(nil, nil); key != "" {
		t.Errorf("no error has the key %q", key)
	}
}

func FuzzErrorPattern(f *testing.F) {
	f.Add("POST /a/1: status 503", "name-1")
	f.Fuzz(func(t *testing.T, message, name string) {
		op := &event.Operation{InstanceID: name}
		if got := ErrorPattern(message, op); len(got) > 300 {
			t.Errorf("%d bytes", len(got))
		}
	})
}
