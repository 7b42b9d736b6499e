package dispatch

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/orchestrator/internal/liveness"
	"github.com/kyma-project/keb/services/orchestrator/internal/recovery"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// noneHeld reports that no worker has a command.
func noneHeld(string, string) bool { return false }

// inFlight returns a bundle with an orchestrator whose batches have three rows, and operations whose commands are lost.
func inFlight(t *testing.T, n int) (*bundle, *orchestrator, []string) {
	t.Helper()
	b := setup(t)
	o := b.orchestrator()
	o.dueBatch = 3
	ids := b.request(o, instances(n)...)
	b.recreateCommands()
	b.clock.Advance(10 * time.Second)
	return b, o, ids
}

// recreateCommands deletes the stream of commands and creates it again.
func (b *bundle) recreateCommands() {
	b.t.Helper()
	require.NoError(b.t, b.bus.JetStream().DeleteStream(b.t.Context(), string(event.StreamCommands)))
	require.NoError(b.t, b.bus.EnsureStreams(b.t.Context()))
}

func TestAfterLoss_TwoOrchestrators_SendEachCommandOnce(t *testing.T) {
	b, o, ids := inFlight(t, 20)
	other := b.orchestrator()
	other.dueBatch = 3
	held := event.CommandID(ids[7], b.row(ids[7]).Cursor)
	left := func(worker, command string) bool { return worker == "alpha" && command == held }

	// A row that another transaction has locked is skipped.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	tx, err := b.db.BeginTxx(ctx, nil)
	require.NoError(t, err)
	_, err = tx.Exec(`SELECT FROM orchestrator.operations WHERE id = $1 FOR UPDATE`, ids[4])
	require.NoError(t, err)
	sent := make([]int, 2)
	var racing sync.WaitGroup
	for i, one := range []*orchestrator{o, other} {
		racing.Go(func() {
			n, unserved, err := one.AfterLoss(t.Context(), b.clock.Now(), false, left)
			if err != nil || unserved != 0 {
				t.Errorf("%d commands without a worker, error %v", unserved, err)
			}
			sent[i] = n
		})
	}
	racing.Wait()
	require.NoError(t, tx.Rollback())
	// Each skips the rows that the other has locked, and together they send all commands.
	if got := sent[0] + sent[1]; got != len(ids)-2 {
		t.Errorf("%v commands sent again, want %d in all", sent, len(ids)-2)
	}
	b.inStream(event.StreamCommands, uint64(len(ids)-2))

	n, _, err := other.AfterLoss(t.Context(), b.clock.Now(), false, left)
	if n != 1 || err != nil {
		t.Errorf("%d commands sent after the unlock, error %v; want the skipped one", n, err)
	}
	b.inStream(event.StreamCommands, uint64(len(ids)-1))
	for _, id := range ids {
		row := b.row(id)
		want := b.clock.Now().Add(time.Minute)
		if id == ids[7] {
			want = epoch.Add(time.Minute)
		}
		if row.Dispatch != 1 || !row.ExecuteBefore.Equal(want) {
			t.Errorf("dispatch %d until %s, want the first until %s", row.Dispatch, row.ExecuteBefore, want)
		}
	}
}

// holders are workers that have these commands.
type holders map[string]bool

func (h holders) Taken(context.Context) (liveness.Taken, error) {
	return liveness.Taken{Commands: h}, nil
}

// A power cut takes the end of a stream away.
func TestRecovery_RestartedBusLacksCommands_SendsOnlyThese(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	executing := holders{}
	r := recovery.New(recovery.Config{Every: time.Second, Timeout: patience, Settle: time.Millisecond, WorkerTimeout: patience},
		recovery.Deps{Bus: b.bus, Workers: executing, Dispatcher: o, Now: b.clock.Now, Log: testkit.Logger(t)})
	round := func() {
		r.Round(t.Context())
		b.clock.Advance(2 * time.Second)
	}
	round()
	round() // what it does after its start
	ids := b.request(o, instances(7)...)
	b.clock.Advance(2 * time.Second)
	executed := event.CommandID(ids[1], b.row(ids[1]).Cursor)
	executing[executed] = true
	stream, err := b.bus.JetStream().Stream(t.Context(), string(event.StreamCommands))
	require.NoError(t, err)
	lost := map[string]bool{executed: true, event.CommandID(ids[4], b.row(ids[4]).Cursor): true, event.CommandID(ids[6], b.row(ids[6]).Cursor): true}
	for seq := uint64(1); seq <= stream.CachedInfo().State.LastSeq; seq++ {
		m, err := stream.GetMsg(t.Context(), seq)
		require.NoError(t, err)
		if lost[event.CommandOf(m.Header.Get(nats.MsgIdHdr))] {
			require.NoError(t, stream.DeleteMsg(t.Context(), seq))
		}
	}
	b.inStream(event.StreamCommands, uint64(len(ids)-len(lost)))
	b.nats.Restart(t)
	testkit.Eventually(t, patience, "the stage memory", func() bool { return b.bus.EnsureStreams(t.Context()) == nil })
	round()
	b.inStream(event.StreamCommands, uint64(len(ids)-len(lost)))
	round()
	b.inStream(event.StreamCommands, uint64(len(ids)-1))
	for i, id := range ids {
		if row := b.row(id); row.Dispatch != 1 || row.ExecuteBefore.Equal(b.row(ids[0]).ExecuteBefore) != (i != 4 && i != 6) {
			t.Errorf("operation %d: dispatch %d until %s", i, row.Dispatch, row.ExecuteBefore)
		}
	}
	round()
	b.inStream(event.StreamCommands, uint64(len(ids)-1)) // once
}

// A partition that lasts longer than the stream knows ids. Whether the bus has stored an unconfirmed command is unknown.
func TestRecovery_BusAwayForTheWindow_SendsOnlyLackingCommands(t *testing.T) {
	for _, stored := range []bool{false, true} {
		b := setup(t)
		start := time.Now() // the lapse is compared with the creation of the streams
		b.clock = testkit.NewClock(start)
		o := b.orchestrator()
		r := recovery.New(recovery.Config{Every: time.Second, Timeout: patience, Settle: time.Second, WorkerTimeout: patience},
			recovery.Deps{Bus: b.bus, Workers: holders{}, Dispatcher: o, Now: b.clock.Now, Log: testkit.Logger(t)})
		round := func() {
			r.Round(t.Context())
			b.clock.Advance(2 * time.Second)
		}
		round()
		round() // what it does after its start
		other := b.request(o, "i-1")[0]
		o.bus.set(commandsOnly, stored)
		requests := b.publishRequests(event.Operation{Type: event.Update, InstanceID: "i-2"})
		require.NoError(t, o.Requests(t.Context(), b.take(b.requests, 1)))
		had := uint64(1)
		if stored {
			had++
		}
		b.inStream(event.StreamCommands, had)
		b.clock.Advance(event.DuplicateWindow)
		o.bus.set(nil, false)
		require.NoError(t, o.Drain(t.Context()))
		b.inStream(event.StreamCommands, had) // the stream may no longer drop a second copy
		for range 3 {
			round()
		}
		b.inStream(event.StreamCommands, 2)
		for _, id := range []string{other, requests[0]} {
			row := b.row(id)
			again := id == requests[0] && !stored
			if row.Dispatch != 1 || row.ExecuteBefore.After(start.Add(90*time.Second)) != again {
				t.Errorf("stored %t: dispatch %d until %s, want it sent again: %t", stored, row.Dispatch, row.ExecuteBefore, again)
			}
		}
	}
}

func TestAfterLoss_CommandInNewStream_IsNotDuplicated(t *testing.T) {
	b, o, ids := inFlight(t, 1)
	cursor := b.row(ids[0]).Cursor
	// The redelivery of the request publishes the command before the loss is detected.
	w, err := o.newWork(t.Context(), b.row(ids[0]), true)
	require.NoError(t, err)
	w.republish = true
	_, err = o.outbox.send(t.Context(), []*work{w})
	require.NoError(t, err)
	if n, _, err := o.AfterLoss(t.Context(), b.clock.Now(), false, noneHeld); n != 1 || err != nil {
		t.Fatalf("%d commands sent again, error %v", n, err)
	}
	b.published(ids[0], cursor, 3)
	b.inStream(event.StreamCommands, 1)

	// Only the results are lost: the stream must not drop the command.
	b.clock.Advance(time.Second)
	if n, _, err := o.AfterLoss(t.Context(), b.clock.Now(), true, noneHeld); n != 1 || err != nil {
		t.Fatalf("%d commands sent again, error %v", n, err)
	}
	b.inStream(event.StreamCommands, 2)
}

func TestAfterLoss_NoWorker_CountsUnservedCommands(t *testing.T) {
	b, o, ids := inFlight(t, 5)
	o.deps.Workers = workers(false)
	sent, unserved, err := o.AfterLoss(t.Context(), b.clock.Now(), false, noneHeld)
	if sent != 0 || unserved != len(ids) || err != nil {
		t.Errorf("%d sent, %d without a worker, error %v; want none and %d", sent, unserved, err, len(ids))
	}
	if row := b.row(ids[0]); !row.ExecuteBefore.Equal(epoch.Add(time.Minute)) {
		t.Errorf("limit is %s, want it unchanged", row.ExecuteBefore)
	}
}

func TestAfterLoss_PublishFails_KeepsCommandsInOutbox(t *testing.T) {
	b, o, ids := inFlight(t, 5)
	refused := 0
	o.bus.set(func(subject string) bool {
		if strings.HasPrefix(subject, "keb.command.") && refused < 3 {
			refused++
			return true
		}
		return false
	}, false)
	b.loseInTwoCalls(o, ids)
	if refused != 3 {
		t.Errorf("%d commands were rejected, want the first batch of three", refused)
	}
}

// unsureDB is a database that can lose the answer to a commit.
type unsureDB struct {
	driver driver.Driver
	url    string
	lose   atomic.Bool
}

func (u *unsureDB) Driver() driver.Driver { return u.driver }

func (u *unsureDB) Connect(context.Context) (driver.Conn, error) {
	c, err := u.driver.Open(u.url)
	return unsureConn{c, u}, err
}

type unsureConn struct {
	driver.Conn
	database *unsureDB
}

func (c unsureConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	begin, ok := c.Conn.(driver.ConnBeginTx)
	if !ok {
		return nil, errors.New("the driver begins no transactions")
	}
	tx, err := begin.BeginTx(ctx, opts)
	return unsureTx{tx, c.database}, err
}

type unsureTx struct {
	driver.Tx
	database *unsureDB
}

func (t unsureTx) Commit() error {
	if err := t.Tx.Commit(); err != nil || !t.database.lose.Swap(false) {
		return err
	}
	return driver.ErrBadConn
}

// loseAnswer makes the orchestrator lose the answer to its next commit.
func (b *bundle) loseAnswer(o *orchestrator) *unsureDB {
	b.t.Helper()
	address, err := url.Parse(b.url)
	require.NoError(b.t, err)
	settings := address.Query()
	settings.Set("binary_parameters", "yes") // as in package postgres
	address.RawQuery = settings.Encode()
	database := &unsureDB{driver: b.db.Driver(), url: address.String()}
	db := sqlx.NewDb(sql.OpenDB(database), "postgres")
	b.t.Cleanup(func() { _ = db.Close() })
	unsure, err := store.New(b.t.Context(), db, b.db)
	require.NoError(b.t, err)
	o.deps.Store = Postgres{Store: unsure}
	database.lose.Store(true)
	return database
}

func TestAfterLoss_CommitAnswerLost_SendsCommands(t *testing.T) {
	b, o, ids := inFlight(t, 5)
	database := b.loseAnswer(o)
	b.loseInTwoCalls(o, ids)
	if database.lose.Load() {
		t.Error("the answer to the commit was not lost")
	}
}

// loseInTwoCalls calls AfterLoss twice: the first call fails with its first batch of three, and the second call sends all commands.
func (b *bundle) loseInTwoCalls(o *orchestrator, ids []string) {
	b.t.Helper()
	if n, _, err := o.AfterLoss(b.t.Context(), b.clock.Now(), false, noneHeld); n != 0 || err == nil {
		b.t.Errorf("%d commands sent again, error %v; want an error", n, err)
	}
	n, _, err := o.AfterLoss(b.t.Context(), b.clock.Now(), false, noneHeld)
	require.NoError(b.t, err)
	if want := len(ids) - 3; n != want {
		b.t.Errorf("%d commands sent again by the second call, want the other %d", n, want)
	}
	b.inStream(event.StreamCommands, uint64(len(ids)))
}
