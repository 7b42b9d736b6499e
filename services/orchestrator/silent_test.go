package orchestrator_test

import (
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
)

func TestRecovery_SilentDatabaseConnections_Continue(t *testing.T) {
	s := newSystem(t)
	direct, err := url.Parse(s.database)
	require.NoError(t, err)
	database := testkit.Proxy(t, direct.Host)
	direct.Host = database.Addr()
	s.cfg.Database.URL = direct.String()
	s.cfg.BatchTimeout = time.Second
	s.start()
	open := make(gate)
	s.script.set("First", open.step)
	operations := manyOperations(10)
	s.request(operations...)
	for _, op := range operations {
		s.await(op, event.InProgress)
	}
	database.Silence()
	close(open)
	for _, op := range operations {
		s.await(op, event.Succeeded)
	}
	s.finishedStagesOnce(operations)
}
