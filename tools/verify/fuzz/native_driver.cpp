// Runs the native executor on one case after another in this process: a line of arguments from stdin, then its exit code.
#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

int executor_main(int count, char** values);  // main.cpp, compiled with -Dmain=executor_main

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::vector<std::string> texts{"socsched-executor"};
    for (std::string word; words >> word;) texts.push_back(word);
    std::vector<char*> values;
    for (std::string& text : texts) values.push_back(text.data());
    std::printf("=%d\n", executor_main(static_cast<int>(values.size()), values.data()));
    std::fflush(stdout);
  }
}
