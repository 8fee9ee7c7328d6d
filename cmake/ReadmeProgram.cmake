# Writes the first C++ block of README, a Markdown file, to OUTPUT, so that a test compiles and runs what it shows.
file(READ ${README} text)
string(FIND "${text}" "```cpp\n" begin)
string(SUBSTRING "${text}" ${begin} -1 text)
string(SUBSTRING "${text}" 7 -1 text)
string(FIND "${text}" "```" end)
string(SUBSTRING "${text}" 0 ${end} text)
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "${text}" @ONLY)
