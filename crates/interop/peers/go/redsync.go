// Redsync, on a majority of all nodes.
package main

import (
	"errors"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
)

type peer struct {
	sync *redsync.Redsync
	held map[string]*redsync.Mutex
}

func main() {
	nodes := clients()
	var pools []redis.Pool
	for _, node := range nodes {
		pools = append(pools, goredis.NewPool(node))
	}
	serve(&peer{redsync.New(pools...), map[string]*redsync.Mutex{}}, nodes[0])
}

func (it *peer) attempt(name string, ttl time.Duration) (bool, error) {
	mutex := it.sync.NewMutex(name, redsync.WithExpiry(ttl), redsync.WithTries(1))
	err := mutex.TryLock()
	var taken *redsync.ErrTaken
	if err == nil {
		it.held[name] = mutex
		return true, nil
	} else if !errors.As(err, &taken) && !errors.Is(err, redsync.ErrFailed) {
		return false, err
	}
	return false, nil
}

func (it *peer) release(name string) error {
	_, err := it.held[name].Unlock()
	delete(it.held, name)
	return err
}

func (it *peer) extend(name string, _ time.Duration) error {
	_, err := it.held[name].Extend()
	return err
}
