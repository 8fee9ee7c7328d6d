#include "deepspeed/comm/job/address_list.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace deepspeed::comm {
namespace {

TEST(AddressList, HasTheAddressesOfAHost) {
  const AddressList list("127.0.0.1", "29500", SOCK_STREAM);
  EXPECT_EQ(list.error(), nullptr);
  ASSERT_NE(list.first(), nullptr);
  EXPECT_EQ(list.first()->ai_socktype, SOCK_STREAM);
  ASSERT_EQ(list.first()->ai_family, AF_INET);
  const auto& address = reinterpret_cast<const sockaddr_in&>(*list.first()->ai_addr);
  EXPECT_EQ(address.sin_addr.s_addr, htonl(INADDR_LOOPBACK));
  EXPECT_EQ(address.sin_port, htons(29500));
}

TEST(AddressList, SaysWhyItIsEmpty) {
  const AddressList list("127.0.0.1", "no number", SOCK_STREAM);
  EXPECT_NE(list.error(), nullptr);
  EXPECT_EQ(list.first(), nullptr);
}

}  // namespace
}  // namespace deepspeed::comm
