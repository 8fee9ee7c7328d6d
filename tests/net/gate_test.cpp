#include "deepspeed/net/gate.h"

#include <thread>

#include <gtest/gtest.h>

#include "deepspeed/net/proof.h"

namespace deepspeed::net {
namespace {

TEST(Gate, IsFullWhileAllPlacesAreTaken) {
  Gate gate(2);
  gate.enter(1);
  EXPECT_FALSE(gate.is_full());
  gate.enter(2);
  EXPECT_TRUE(gate.is_full());
  gate.leave(1);
  EXPECT_FALSE(gate.is_full());
}

TEST(Gate, LetsEveryClientStayForASecond) {
  Gate gate(2);
  EXPECT_EQ(gate.to_make_room(), std::nullopt);
  gate.enter(7);
  gate.enter(3);
  EXPECT_EQ(gate.to_make_room(), std::nullopt);
  EXPECT_EQ(gate.overdue(), std::nullopt);
  std::this_thread::sleep_for(std::chrono::milliseconds(1010));
  EXPECT_EQ(gate.to_make_room(), 7U);  // the oldest
  gate.leave(7);
  EXPECT_EQ(gate.to_make_room(), 3U);
  EXPECT_EQ(gate.overdue(), std::nullopt);
}

TEST(Gate, TellsWhenTheOldestClientIsOverdue) {
  Gate gate(2);
  EXPECT_FALSE(gate.next_deadline());
  const auto before = std::chrono::steady_clock::now();
  gate.enter(1);
  const auto after = std::chrono::steady_clock::now();
  gate.enter(2);
  EXPECT_GE(*gate.next_deadline(), before + std::chrono::seconds(10));
  EXPECT_LE(*gate.next_deadline(), after + std::chrono::seconds(10));
}

TEST(Prover, AcceptsAProofForItsOwnConnectionEndAndPurposeOnly) {
  const Prover prover("the job's secret", "link");
  const ProofNumbers numbers{random_number(), random_number()};
  const std::string proof = prover.proof(End::kClient, numbers);
  EXPECT_TRUE(Prover("the job's secret", "link").is_proof(proof, End::kClient, numbers));
  EXPECT_FALSE(prover.is_proof(proof, End::kServer, numbers));
  EXPECT_FALSE(prover.is_proof(proof, End::kClient, {numbers.client, random_number()}));
  EXPECT_FALSE(prover.is_proof(proof, End::kClient, {random_number(), numbers.server}));
  EXPECT_FALSE(prover.is_proof(proof, End::kClient, {numbers.server, numbers.client}));
  EXPECT_FALSE(prover.is_proof(proof.substr(1), End::kClient, numbers));
  EXPECT_FALSE(prover.is_proof("", End::kClient, numbers));
  EXPECT_FALSE(Prover("another secret", "link").is_proof(proof, End::kClient, numbers));
  EXPECT_FALSE(Prover("the job's secret", "store").is_proof(proof, End::kClient, numbers));
  EXPECT_NE(prover.key(End::kClient, numbers), prover.key(End::kServer, numbers));
}

TEST(RandomNumber, NeverRepeats) {
  EXPECT_EQ(random_number().size(), 32U);
  EXPECT_NE(random_number(), random_number());
}

}  // namespace
}  // namespace deepspeed::net
