package simulation_test

// arena lends values that are taken back all at once: a schedule uses the memory of the one before it.
type arena[T any] struct {
	lent []*T
	n    int
}

// next is a value that was used before; whoever takes it sets it.
func (a *arena[T]) next() *T {
	if a.n == len(a.lent) {
		a.lent = append(a.lent, new(T))
	}
	a.n++
	return a.lent[a.n-1]
}

// arenas are those of a runner.
type arenas struct {
	works      arena[work]
	messages   arena[message]
	operations arena[operation]
}

func (a *arenas) reset() { a.works.n, a.messages.n, a.operations.n = 0, 0, 0 }
