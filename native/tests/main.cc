// doctest's main, and the time limit every test case has: the process ends with the case's name on stderr.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <thread>

namespace {

constexpr unsigned kLimitSeconds = 240;  // per test case; generous because sanitizers are slow
const char *running = "";

void too_slow(int) {
  const char text[] = "\ntime limit exceeded in test case: ";
  (void)!write(STDERR_FILENO, text, sizeof text - 1);
  (void)!write(STDERR_FILENO, running, strlen(running));
  (void)!write(STDERR_FILENO, "\n", 1);
  _exit(124);
}

struct TimeLimit : doctest::IReporter {
  explicit TimeLimit(const doctest::ContextOptions &) { signal(SIGALRM, too_slow); }
  void test_case_start(const doctest::TestCaseData &test) override {
    running = test.m_name;
    alarm(kLimitSeconds);
  }
  void test_case_end(const doctest::CurrentTestCaseStats &) override { alarm(0); }
  void report_query(const doctest::QueryData &) override {}
  void test_run_start() override {}
  // Threads that tests left behind end a little later. The leak sanitizer falls over those that are just
  // ending.
  void test_run_end(const doctest::TestRunStats &) override {
    using std::filesystem::directory_iterator;
    for (int i = 0; i < 200; ++i) {
      if (std::distance(directory_iterator("/proc/self/task"), directory_iterator()) == 1) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  void test_case_reenter(const doctest::TestCaseData &) override {}
  void test_case_exception(const doctest::TestCaseException &) override {}
  void subcase_start(const doctest::SubcaseSignature &) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData &) override {}
  void log_message(const doctest::MessageData &) override {}
  void test_case_skipped(const doctest::TestCaseData &) override {}
};

}  // namespace

DOCTEST_REGISTER_LISTENER("time_limit", 1, TimeLimit);
