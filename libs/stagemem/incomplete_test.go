package stagemem_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
)

// scripted creates a bucket whose lists the test answers. The server does not answer them, because direct reads are off.
func scripted(t *testing.T, f *fixture, answers func(round int) []*nats.Msg) {
	t.Helper()
	_, err := f.js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "KV_" + event.StageBucket, Subjects: []string{"$KV." + event.StageBucket + ".>"}, Storage: jetstream.MemoryStorage, MaxMsgsPerSubject: 1,
	})
	require.NoError(t, err)
	var round atomic.Int64
	_, err = f.js.Conn().Subscribe("$JS.API.DIRECT.GET.KV_"+event.StageBucket, func(question *nats.Msg) {
		for _, m := range answers(int(round.Add(1))) {
			m.Subject = question.Reply
			if err := f.js.Conn().PublishMsg(m); err != nil {
				t.Error(err)
			}
		}
	})
	require.NoError(t, err)
}

func status(line string, pending string) *nats.Msg {
	m := &nats.Msg{Header: nats.Header{"Status": {line[:3]}, "Description": {line[4:]}}}
	if pending != "" {
		m.Header.Set("Nats-Num-Pending", pending)
	}
	return m
}

func (f *fixture) value(t *testing.T, key string) *nats.Msg {
	t.Helper()
	full := fmt.Sprintf("%s.%s.%d.%s", scope.OperationID, scope.Stage, scope.StageAttempt, key)
	sealed, err := f.keys.Seal([]byte("value of "+key), []byte(full))
	require.NoError(t, err)
	return &nats.Msg{Header: nats.Header{jetstream.SubjectHeader: {"$KV." + event.StageBucket + "." + full}}, Data: []byte(sealed)}
}

func TestList_Incomplete_ReturnsError(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]*nats.Msg{
		"a value cannot be read": status("404 Message Not Found", ""),
		"more is to come":        status("204 EOB", "3"),
		"an unknown number":      status("204 EOB", ""),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setup(t)
			scripted(t, f, func(int) []*nats.Msg { return []*nats.Msg{f.value(t, "a"), {Header: end.Header}} })
			if values, err := f.mem.List(t.Context(), scope, ""); err == nil {
				t.Errorf("the list is taken for whole: %v", values)
			}
		})
	}
}

func TestList_IncompleteOnce_IsRepeated(t *testing.T) {
	t.Parallel()
	f := setup(t)
	scripted(t, f, func(round int) []*nats.Msg {
		if round == 1 {
			return []*nats.Msg{status("404 Message Not Found", "")} // before the first value
		}
		return []*nats.Msg{f.value(t, "a"), f.value(t, "b"), status("204 EOB", "0")}
	})
	values, err := f.mem.List(t.Context(), scope, "")
	require.NoError(t, err)
	if diff := cmp.Diff(map[string][]byte{"a": []byte("value of a"), "b": []byte("value of b")}, values); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
}
