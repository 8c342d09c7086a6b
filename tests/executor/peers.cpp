// Two processes with jobs under way on one device: whom a soft job waits for.
#include <cstdio>
#include <sys/wait.h>

#include "under_way.hpp"

int main(int, char** arguments) {
  int ready[2];
  char byte = 0;
  if (pipe(ready)) return 2;
  socsched::UnderWay mine("gpu0", arguments[1]);
  const bool before = mine.above(0);
  const pid_t child = fork();
  if (child == 0) {
    socsched::UnderWay other("gpu0", arguments[1]);
    other.begin(2);
    if (write(ready[1], &byte, 1) != 1) return 2;
    pause();
  }
  if (read(ready[0], &byte, 1) != 1) return 2;
  std::printf("%d %d %d ", before, mine.above(0), mine.above(2));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  std::printf("%d ", mine.above(0));
  mine.begin(1);
  std::printf("%d %d\n", mine.above(0), mine.above(1));
}
